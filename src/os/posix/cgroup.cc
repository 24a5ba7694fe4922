#include "os/posix/cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/text.h"
#include "os/posix/file_io.h"
#include "os/posix/forking.h"
#include "os/posix/process_tree.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

bool WriteTo(const std::string& path, std::string_view text) {
  const OwnedFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.is_open() && WriteAll(file.get(), text);
}

// mountinfo writes blanks, tabs, line ends and backslashes as \ooo.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto code = text[i] == '\\' ? ParseAll<int>(text.substr(i + 1, 3), 8) : std::nullopt;
    plain += code ? static_cast<char>(*code) : text[i];
    if (code) i += 3;
  }
  return plain;
}

std::optional<std::string> PathInVersion2(std::string_view cgroup) {
  for (const std::string_view line : Split(cgroup, '\n')) {
    if (line.starts_with("0::/")) return std::string(line.substr(3));
  }
  return std::nullopt;
}

std::vector<fs::path> GroupsBelow(const std::string& path) {
  std::vector<fs::path> below;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code none;
    if (entry->is_directory(none) && !entry->is_symlink(none)) below.push_back(entry->path());
  }
  return below;
}

void AppendMembers(const std::string& path, std::vector<pid_t>& members) {
  std::ifstream in(path + "/cgroup.procs");
  for (pid_t pid = 0; in >> pid;) {
    if (pid > 0) members.push_back(pid);  // 0: a process outside this pid namespace
  }
  for (const fs::path& below : GroupsBelow(path)) AppendMembers(below, members);
}

bool RemoveAll(const std::string& path) {
  for (const fs::path& below : GroupsBelow(path)) {
    if (!RemoveAll(below)) return false;
  }
  return rmdir(path.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

std::optional<std::string> OwnCgroupFolder(std::string_view mountinfo, std::string_view cgroup) {
  const std::optional<std::string> path = PathInVersion2(cgroup);
  // "/..": a group outside our cgroup namespace, out of reach.
  if (!path || path->starts_with("/..")) return std::nullopt;
  for (const std::string_view line : Split(mountinfo, '\n')) {
    // "36 35 98:0 /root /point options [optional ...] - type source options", where /root is the
    // part of the hierarchy that is seen at /point
    const std::vector<std::string_view> words = Split(line, ' ');
    if (words.size() < 5 || line.find(" - cgroup2 ") == std::string_view::npos) continue;
    const std::string root = Unescape(words[3]);
    const std::string point = Unescape(words[4]);
    if (root == "/") return *path == "/" ? point : point + *path;
    if (!path->starts_with(root)) continue;
    const std::string below = path->substr(root.size());
    if (below.empty() || below.starts_with('/')) return point + below;
  }
  return std::nullopt;
}

std::unique_ptr<Cgroup> Cgroup::Make(const std::string& name) {
  const std::optional<std::string> ours = OwnCgroupFolder(
      ReadUpTo("/proc/self/mountinfo").value_or(""), ReadUpTo("/proc/self/cgroup").value_or(""));
  if (!ours) return nullptr;
  std::string path = *ours + "/" + name;
  if (mkdir(path.c_str(), 0755) != 0) return nullptr;
  OwnedFd members(open((path + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  members = MoveTo(std::move(members), 3);
  // Moving a process needs the right to write to both groups, the old and the new one.
  const bool usable = members.is_open() && access((*ours + "/cgroup.procs").c_str(), W_OK) == 0;
  if (!usable) {
    rmdir(path.c_str());
    return nullptr;
  }
  return std::make_unique<Cgroup>(std::move(path), std::move(members));
}

std::vector<pid_t> Cgroup::Members() const {
  std::vector<pid_t> members;
  AppendMembers(path_, members);
  return members;
}

bool Cgroup::IsEmpty() const {
  return ReadUpTo(path_ + "/cgroup.events").value_or("").find("populated 1") == std::string::npos;
}

void Cgroup::Kill() const {
  if (!WriteTo(path_ + "/cgroup.kill", "1")) KillOneByOne();
}

void Cgroup::KillOneByOne() const {
  WriteTo(path_ + "/cgroup.freeze", "1");
  for (const pid_t pid : Members()) {
    if (const std::optional<ProcessFacts> facts = FactsOf(pid)) SignalProcess(*facts, SIGKILL);
  }
  WriteTo(path_ + "/cgroup.freeze", "0");
}

bool Cgroup::End(Duration limit) const {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  for (int pause_ms = 1; !IsEmpty(); pause_ms = std::min(pause_ms * 2, 20)) {
    if (std::chrono::steady_clock::now() >= give_up) return false;
    Kill();
    poll(nullptr, 0, pause_ms);
  }
  return true;
}

bool Cgroup::Remove() const { return RemoveAll(path_); }

}  // namespace muster
