#include "etcd/etcd_server.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/interruption.h"
#include "base/prng.h"
#include "muster/error.h"
#include "os/ports/system.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "os/posix/tcp_socket.h"
#include "store/throw.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

constexpr Duration kStopGrace = 3s;
constexpr Duration kPoll = 50ms;
constexpr Duration kHealthAnswer = 2s;
constexpr size_t kLogTailBytes = 1'500;
constexpr size_t kAnswerBytesMax = 16 * 1024;

std::string BinaryOf(const EtcdServerOptions& options) {
  if (!options.binary.empty()) return options.binary;
  const char* const given = std::getenv("TORCHELASTIC_ETCD_BINARY_PATH");
  std::error_code ignored;
  if (given != nullptr && fs::exists(given, ignored)) return given;
  return "etcd";
}

std::string Tail(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() <= kLogTailBytes) return text;
  text.erase(0, text.size() - kLogTailBytes);
  return text.substr(text.find('\n') + 1);
}

/// A port of 127.0.0.1 that is free now and outside the range from which the system assigns ports:
/// it will be free when a server is started there.
uint16_t QuietPort() {
  constexpr int kLowestPort = 10'000;
  constexpr int kAttemptsMax = 1'000;
  std::ifstream given_away("/proc/sys/net/ipv4/ip_local_port_range");
  int end = 0;
  given_away >> end;
  if (end <= kLowestPort) end = 32'768;
  Prng prng(ThisProcess().Seed());
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const auto port = static_cast<uint16_t>(
        kLowestPort + static_cast<int>(prng.Below(static_cast<uint64_t>(end - kLowestPort))));
    if (ListeningSocket::Bind("127.0.0.1", port)) return port;
  }
  throw std::runtime_error(Concat("no free port of 127.0.0.1 between ", kLowestPort, " and ", end));
}

/// The response to an HTTP GET; empty: none.
std::string HttpGet(uint16_t port, std::string_view path, Instant deadline) {
  PosixClock clock;
  PosixDialer dialer(clock);
  deadline = std::min(deadline, clock.Now() + kHealthAnswer);
  auto stream = dialer.Dial({"127.0.0.1", port}, deadline);
  const std::string request = Concat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n");
  if (!stream || !(*stream)->Send(request, deadline)) return "";
  std::string answer;
  char buffer[1024];
  while (answer.size() < kAnswerBytesMax) {
    const Result<size_t> got = (*stream)->Receive(buffer, deadline);
    if (!got || *got == 0) break;
    answer.append(buffer, *got);
  }
  return answer;
}

/// False: the folder existed.
bool MakeFolder(const fs::path& folder) {
  std::error_code failure;
  const bool made = fs::create_directories(folder, failure);
  if (!failure) return made;
  throw std::runtime_error(
      Concat("cannot make the folder ", folder.string(), ": ", failure.message()));
}

}  // namespace

/// Whether the member is healthy, which needs a leader. If another etcd has its client port, that
/// one answers; but only this member serves its peer port, and only if it has both ports.
bool EtcdServer::Member::IsHealthy(Instant deadline) const {
  return HttpGet(client_port, "/health", deadline).find("\"health\":\"true\"") !=
             std::string::npos &&
         HttpGet(peer_port, "/version", deadline).find("etcdserver") != std::string::npos;
}

EtcdServer::EtcdServer(EtcdServerOptions options) : options_(std::move(options)) {
  if (options_.members < 1 || options_.members > 9) {
    throw std::invalid_argument(
        Concat("EtcdServerOptions::members is ", options_.members, ", allowed: 1 to 9"));
  }
}

void EtcdServer::MakeRoot() {
  if (!options_.data_dir.empty()) {
    root_ = options_.data_dir;
    made_root_ = MakeFolder(root_);
    return;
  }
  std::string name = (fs::temp_directory_path() / "torchelastic_etcd_data_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    throw std::runtime_error(Concat("cannot make a temporary folder like ", name));
  root_ = name;
  made_root_ = true;
}

void EtcdServer::StartAttempt(int attempt) {
  folders_.push_back(root_ / std::to_string(attempt));
  members_.resize(static_cast<size_t>(options_.members));
  std::string cluster;
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].client_port = i == 0 && options_.port != 0 ? options_.port : QuietPort();
    members_[i].peer_port = QuietPort();
    cluster += Concat(i == 0 ? "" : ",", "m", i, "=http://127.0.0.1:", members_[i].peer_port);
  }
  for (size_t i = 0; i < members_.size(); ++i) StartMember(i, cluster);
}

void EtcdServer::StartMember(size_t index, const std::string& cluster) {
  Member& member = members_[index];
  const std::string name = Concat("m", index);
  const fs::path folder = folders_.back() / name;
  MakeFolder(folder);
  member.log = (folder / "etcd.log").string();
  const std::string client = Concat("http://127.0.0.1:", member.client_port);
  const std::string peer = Concat("http://127.0.0.1:", member.peer_port);
  std::vector<std::string> command = {BinaryOf(options_)};
  for (const auto& [flag, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"--name", name},
           {"--data-dir", (folder / "data").string()},
           {"--listen-client-urls", client},
           {"--advertise-client-urls", "http://" + member.endpoint()},
           {"--listen-peer-urls", peer},
           {"--initial-advertise-peer-urls", peer},
           {"--initial-cluster", cluster}})
    command.insert(command.end(), {flag, value});
  Result<std::unique_ptr<KeptChild>> process = KeptChild::Start(command, member.log);
  if (!process) {
    throw std::runtime_error(Concat(process.error().message,
                                    "; install etcd (Debian: etcd-server), or name the program in "
                                    "TORCHELASTIC_ETCD_BINARY_PATH"));
  }
  member.process = std::move(*process);
}

void EtcdServer::AwaitHealth(std::chrono::milliseconds timeout) const {
  PosixClock clock;
  const Instant began = clock.Now();
  const Instant deadline = After(began, timeout);
  for (const Member& member : members_) {
    const std::string name = Concat("etcd at ", member.endpoint());
    while (!member.IsHealthy(deadline)) {
      if (IsInterrupted()) Throw(Interrupted(began, clock.Now(), Concat("waiting for ", name)));
      if (const auto end = member.process->end()) {
        throw std::runtime_error(Concat(name, " ended with ", *end,
                                        " instead of serving; the end of its log:\n",
                                        Tail(member.log)));
      }
      if (clock.Now() >= deadline) {
        throw StoreTimeoutError(Concat(name, " was not healthy after ", timeout.count(),
                                       " ms; the end of its log:\n", Tail(member.log)));
      }
      clock.SleepUntil(clock.Now() + kPoll);
    }
  }
}

void EtcdServer::EndMembers() {
  // All at once: a member that stops alone would first wait for a new leader.
  for (const Member& member : members_) {
    if (member.process) member.process->Signal(SIGTERM);
  }
  for (const Member& member : members_) {
    if (member.process) member.process->AwaitEnd(kStopGrace);
  }
  members_.clear();
}

void EtcdServer::Start(std::chrono::milliseconds timeout, int retries) {
  if (!members_.empty()) return;
  MakeRoot();
  for (int attempt = 0;; ++attempt) {
    try {
      StartAttempt(attempt);
      return AwaitHealth(timeout);
    } catch (const InterruptedError&) {
      Stop();
      throw;
    } catch (...) {
      EndMembers();
      if (attempt < retries) continue;
      Stop();
      throw;
    }
  }
}

void EtcdServer::Stop() {
  EndMembers();
  std::error_code ignored;
  for (const fs::path& folder : folders_) fs::remove_all(folder, ignored);
  folders_.clear();
  if (made_root_) fs::remove(root_, ignored);  // fails if others have files there
  made_root_ = false;
}

}  // namespace muster
