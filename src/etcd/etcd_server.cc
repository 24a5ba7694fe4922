#include "muster/etcd_server.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "os/ports/system.h"
#include "os/posix/kept_child.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "os/posix/process.h"
#include "store/throw.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

constexpr int kSigTerm = 15;
constexpr Duration kStopGrace = 3s;
constexpr Duration kPoll = 50ms;
constexpr Duration kHealthAnswer = 2s;
constexpr size_t kLogTailBytes = 1'500;
constexpr size_t kAnswerBytesMax = 16 * 1024;

struct MemberOf {
  uint16_t client_port = 0;
  uint16_t peer_port = 0;
  std::string log;
  std::unique_ptr<KeptChild> process;
};

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

uint16_t QuietPort() {
  const Result<uint16_t> port = FindQuietPort(ThisProcess().Seed());
  if (!port) throw std::runtime_error(port.error().message);
  return *port;
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

/// Whether the member is healthy, which needs a leader. If another etcd has its client port, that
/// one answers; but only this member, when it has both ports, serves the peer port.
bool IsHealthy(const MemberOf& member, Instant deadline) {
  return HttpGet(member.client_port, "/health", deadline).find("\"health\":\"true\"") !=
             std::string::npos &&
         HttpGet(member.peer_port, "/version", deadline).find("etcdserver") != std::string::npos;
}

}  // namespace

void EtcdServerOptions::Validate() const {
  if (members < 1 || members > 9) {
    throw std::invalid_argument(
        Concat("EtcdServerOptions::members is ", members, ", allowed: 1 to 9"));
  }
}

struct EtcdServer::Impl {
  explicit Impl(EtcdServerOptions given) : options(std::move(given)) { options.Validate(); }

  void MakeRoot() {
    if (!options.data_dir.empty()) {
      std::error_code failure;
      made_root = fs::create_directories(options.data_dir, failure);
      if (failure) {
        throw std::runtime_error(
            Concat("cannot make the folder ", options.data_dir, ": ", failure.message()));
      }
      root = options.data_dir;
      return;
    }
    std::string name = (fs::temp_directory_path() / "torchelastic_etcd_data_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw std::runtime_error(Concat("cannot make a temporary folder like ", name));
    root = name;
    made_root = true;
  }

  void StartAttempt(int attempt) {
    folders.push_back(fs::path(root) / std::to_string(attempt));
    members.clear();
    std::string cluster;
    for (int i = 0; i < options.members; ++i) {
      MemberOf& member = members.emplace_back();
      member.client_port = i == 0 && options.port != 0 ? options.port : QuietPort();
      member.peer_port = QuietPort();
      cluster += Concat(i == 0 ? "" : ",", "m", i, "=http://127.0.0.1:", member.peer_port);
    }
    for (int i = 0; i < options.members; ++i) StartMember(i, cluster);
  }

  void StartMember(int index, const std::string& cluster) {
    MemberOf& member = members[static_cast<size_t>(index)];
    const fs::path folder = folders.back() / Concat("m", index);
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure)
      throw std::runtime_error(Concat("cannot make ", folder.string(), ": ", failure.message()));
    member.log = (folder / "etcd.log").string();
    const std::string client = Concat("http://127.0.0.1:", member.client_port);
    const std::string peer = Concat("http://127.0.0.1:", member.peer_port);
    std::vector<std::string> command = {BinaryOf(options),
                                        "--name",
                                        Concat("m", index),
                                        "--data-dir",
                                        (folder / "data").string(),
                                        "--listen-client-urls",
                                        client,
                                        "--advertise-client-urls",
                                        Concat("http://localhost:", member.client_port),
                                        "--listen-peer-urls",
                                        peer,
                                        "--initial-advertise-peer-urls",
                                        peer,
                                        "--initial-cluster",
                                        cluster};
    command.insert(command.end(), options.flags.begin(), options.flags.end());
    Result<std::unique_ptr<KeptChild>> process = KeptChild::Start(command, member.log);
    if (!process) {
      throw std::runtime_error(
          Concat(process.error().message,
                 "; install etcd (Debian: etcd-server), or name the program in "
                 "TORCHELASTIC_ETCD_BINARY_PATH"));
    }
    member.process = std::move(*process);
  }

  void AwaitHealth(std::chrono::milliseconds timeout) {
    PosixClock clock;
    const Instant began = clock.Now();
    const Instant deadline = After(began, timeout);
    for (MemberOf& member : members) {
      while (!IsHealthy(member, deadline)) {
        if (IsInterrupted()) {
          Throw(Interrupted(began, clock.Now(),
                            Concat("waiting for etcd at localhost:", member.client_port)));
        }
        if (const auto end = member.process->end()) {
          throw std::runtime_error(Concat("etcd at localhost:", member.client_port, " ended with ",
                                          *end, " instead of serving; the end of its log:\n",
                                          Tail(member.log)));
        }
        if (clock.Now() >= deadline) {
          throw StoreTimeoutError(Concat("etcd at localhost:", member.client_port,
                                         " was not healthy after ", timeout.count(),
                                         " ms; the end of its log:\n", Tail(member.log)));
        }
        clock.SleepUntil(clock.Now() + kPoll);
      }
    }
  }

  void EndMembers() {
    // All at once: a member that stops alone would first wait for a new leader.
    for (MemberOf& member : members) {
      if (member.process) member.process->Signal(kSigTerm);
    }
    for (MemberOf& member : members) {
      if (member.process) member.process->AwaitEnd(kStopGrace);
    }
    members.clear();
  }

  void CleanUp() {
    EndMembers();
    std::error_code ignored;
    for (const fs::path& folder : folders) fs::remove_all(folder, ignored);
    folders.clear();
    if (made_root) fs::remove(root, ignored);  // fails if others have files there
    made_root = false;
    running = false;
  }

  EtcdServerOptions options;
  fs::path root;
  bool made_root = false;
  bool running = false;
  std::vector<fs::path> folders;
  std::vector<MemberOf> members;
};

EtcdServer::EtcdServer(EtcdServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

EtcdServer::~EtcdServer() { Stop(); }

void EtcdServer::Start(std::chrono::milliseconds timeout, int retries) {
  if (impl_->running) return;
  impl_->MakeRoot();
  for (int attempt = 0;; ++attempt) {
    try {
      impl_->StartAttempt(attempt);
      impl_->AwaitHealth(timeout);
      impl_->running = true;
      return;
    } catch (const InterruptedError&) {
      impl_->CleanUp();
      throw;
    } catch (...) {
      impl_->EndMembers();
      if (attempt >= retries) {
        impl_->CleanUp();
        throw;
      }
    }
  }
}

void EtcdServer::Stop() {
  if (impl_->running) impl_->CleanUp();
}

bool EtcdServer::is_running() const { return impl_->running; }

int EtcdServer::port() const { return impl_->running ? impl_->members[0].client_port : -1; }

std::string EtcdServer::endpoint() const { return Concat(host(), ":", port()); }

std::vector<std::string> EtcdServer::endpoints() const {
  std::vector<std::string> all;
  if (!impl_->running) return all;
  for (const MemberOf& member : impl_->members)
    all.push_back(Concat(host(), ":", member.client_port));
  return all;
}

std::vector<int> EtcdServer::pids() const {
  std::vector<int> all;
  for (const MemberOf& member : impl_->members) all.push_back(member.process->pid());
  return all;
}

std::vector<std::optional<std::string>> EtcdServer::ends() const {
  std::vector<std::optional<std::string>> all;
  for (const MemberOf& member : impl_->members) all.push_back(member.process->end());
  return all;
}

}  // namespace muster
