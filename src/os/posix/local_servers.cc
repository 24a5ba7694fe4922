#include "os/posix/local_servers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unordered_map>

#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/file_io.h"
#include "os/posix/process_tree.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

using Listeners = std::unordered_map<uint64_t, Endpoint>;  // by the inode of the socket

/// "0100007F:1F90": 32-bit words in the byte order of this machine, then the port.
Endpoint ReadAddress(const std::string& text) {
  const size_t digits = text.find(':');
  IpBytes ip{};
  if (digits == 8) ip[10] = ip[11] = 0xff;  // IPv4 is mapped into IPv6
  size_t at = ip.size() - std::min(digits / 2, ip.size());
  bool is_any = true;
  for (size_t i = 0; i + 8 <= digits && at < ip.size(); i += 8, at += sizeof(uint32_t)) {
    const uint32_t word = ParseAll<uint32_t>(std::string_view(text).substr(i, 8), 16).value_or(0);
    std::memcpy(&ip[at], &word, sizeof word);
    is_any = is_any && word == 0;
  }
  const uint16_t port =
      ParseAll<uint16_t>(std::string_view(text).substr(digits + 1), 16).value_or(0);
  // A server on all IPv6 interfaces serves IPv4, too (ListeningSocket::Bind).
  return {.host = is_any ? "127.0.0.1" : ToString(ip), .port = port};
}

Listeners FindListeners() {
  Listeners found;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);  // the heads of the columns
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string local;
      std::string state;
      std::string other;
      uint64_t inode = 0;
      words >> other >> local >> other >> state;
      if (state != "0A") break;  // connections: they come after the listening sockets
      words >> other >> other >> other >> other >> other >> inode;
      found.emplace(inode, ReadAddress(local));
    }
  }
  return found;
}

std::string LinkAt(const std::string& path) {
  std::error_code none;
  return fs::read_symlink(path, none).string();
}

/// Without " (deleted)", which is there once another version has been installed.
std::string ProgramOf(const std::string& process) {
  const std::string name = fs::path(LinkAt(process + "/exe")).filename();
  return name.substr(0, name.find(" (deleted)"));
}

/// Calls `found(inode)` for all that the event loops of the process watch.
template <typename Found>
void ForEachWatched(const std::string& process, const Found& found) {
  std::error_code error;
  for (fs::directory_iterator fd(process + "/fd", error), end; !error && fd != end;
       fd.increment(error)) {
    if (LinkAt(fd->path()) != "anon_inode:[eventpoll]") continue;
    std::ifstream words(Concat(process, "/fdinfo/", fd->path().filename().string()));
    for (std::string word; words >> word;) {
      const auto inode = word.starts_with("ino:")
                             ? ParseAll<uint64_t>(std::string_view(word).substr(4), 16)
                             : std::nullopt;
      if (inode) found(*inode);
    }
  }
}

}  // namespace

std::vector<LocalServer> LocalServers() {
  Listeners listeners = FindListeners();
  const std::string program = ProgramOf("/proc/self");
  const std::string network = LinkAt("/proc/self/ns/net");
  std::vector<LocalServer> servers;
  for (const ProcessFacts& facts : AllProcesses()) {
    const std::string process = Concat("/proc/", facts.pid);
    struct stat owner {};
    const bool is_own = stat(process.c_str(), &owner) == 0 && owner.st_uid == geteuid() &&
                        ProgramOf(process) == program && LinkAt(process + "/ns/net") == network;
    if (!is_own) continue;
    const std::string command = ReadUpTo(process + "/cmdline", 4096).value_or("");
    const std::vector<std::string_view> words = Split(command, '\0');
    ForEachWatched(process, [&](uint64_t inode) {
      const auto listener = listeners.find(inode);
      if (listener == listeners.end()) return;
      servers.push_back({listener->second, std::string(words.size() > 1 ? words[1] : "")});
      listeners.erase(listener);  // a child that has not yet executed its program watches it, too
    });
  }
  return servers;
}

}  // namespace muster
