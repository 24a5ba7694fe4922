#include "launch/workers/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "os/posix/forking.h"
#include "os/posix/process_tree.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

constexpr int kShutdownMs = 1000;
constexpr Duration kCleanUpMax = 10s;

// The guardian's descriptors.
constexpr int kSocketFd = 3;
constexpr int kLauncherFd = 4;

enum MessageKind : int32_t { kWatch, kForget, kShutdown };

// One datagram each, so that none is read in part.
struct Message {
  int32_t kind = kWatch;
  pid_t leader = 0;
  uint64_t started =
      0;  // when the leader started: distinguishes it from a later process with its pid
};

Error CannotGuard(std::string_view what) {
  return SystemError(Concat("cannot guard workers: ", what));
}

std::optional<Message> Receive() {
  Message message;
  const ssize_t got = recv(kSocketFd, &message, sizeof message, MSG_DONTWAIT);
  if (got != static_cast<ssize_t>(sizeof message)) return std::nullopt;
  return message;
}

/// What the guardian does in its own process.
void RunGuardian(const std::string& mark, const Cgroup* cgroup) {
  ProcessFamily workers{.marks = {mark}};
  std::array<pollfd, 2> events{pollfd{.fd = kSocketFd, .events = POLLIN, .revents = 0},
                               pollfd{.fd = kLauncherFd, .events = POLLIN, .revents = 0}};
  while (true) {
    if (poll(events.data(), events.size(), -1) < 0) continue;
    // Messages first: the launcher may have sent the shutdown message before it ended.
    while (const std::optional<Message> message = Receive()) {
      if (message->kind == kShutdown) return;
      std::erase_if(workers.leaders,
                    [&](const Leader& known) { return known.pid == message->leader; });
      if (message->kind == kWatch) workers.leaders.emplace_back(message->leader, message->started);
    }
    // The socket alone may close while the launcher hangs in its exit. It may also stay open after
    // the launcher's death, in a fork of it.
    if (events[1].revents != 0 || (events[0].revents & POLLHUP) != 0) break;
  }
  if (cgroup != nullptr) cgroup->End(kCleanUpMax);
  EndFamily(workers, kCleanUpMax);
  if (cgroup != nullptr) cgroup->Remove();
}

/// In the new process: leaves the session, signals, descriptors and folder of its parent. False:
/// there is no descriptor to wait on.
bool Detach(int socket, int launcher) {
  setsid();
  prctl(PR_SET_NAME, "muster-guardian");
  if (dup2(socket, kSocketFd) < 0 || dup2(launcher, kLauncherFd) < 0) return false;
  CloseFrom(kLauncherFd + 1);
  // Readers of the launcher's output must not wait for this process, and no file that is opened
  // later may become a standard stream.
  const int null = open("/dev/null", O_RDWR);
  for (int standard = 0; standard < 3; ++standard) dup2(null, standard);
  CloseFrom(kLauncherFd + 1);
  ResetSignals();
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) signal(number, SIG_IGN);
  UnblockSignals();
  return chdir("/") == 0;
}

}  // namespace

Result<std::unique_ptr<Guardian>> Guardian::Start(const std::string& mark, const Cgroup* cgroup) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return CannotGuard("socketpair");
  // Above the numbers of the guardian's descriptors, so that none is overwritten before it is
  // moved.
  OwnedFd ours = MoveTo(OwnedFd(ends[0]), kLauncherFd + 1);
  const OwnedFd theirs = MoveTo(OwnedFd(ends[1]), kLauncherFd + 1);
  OwnedFd launcher = OpenProcess(getpid());
  if (!launcher.is_open()) return CannotGuard("pidfd_open (Linux 5.3 or newer is needed)");
  launcher = MoveTo(std::move(launcher), kLauncherFd + 1);
  if (!ours.is_open() || !theirs.is_open() || !launcher.is_open()) return CannotGuard("fcntl");
  pid_t pid = 0;
  {
    const AllSignalsBlocked blocked;  // no handler of the launcher may run in the new process
    pid = fork();
    if (pid == 0) {
      if (Detach(theirs.get(), launcher.get())) RunGuardian(mark, cgroup);
      _exit(0);
    }
  }
  if (pid < 0) return CannotGuard("fork");
  return std::unique_ptr<Guardian>(new Guardian(pid, std::move(ours)));
}

Guardian::~Guardian() {
  Send(kShutdown, 0, 0);
  socket_.Close();
  if (pid_ == 0) return;
  const OwnedFd handle = OpenProcess(pid_);
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  // It may be stopped (SIGSTOP).
  if (!handle.is_open() || poll(&ended, 1, kShutdownMs) != 1) kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool Guardian::ReapIfEnded() {
  if (pid_ == 0 || waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
  pid_ = 0;
  return true;
}

void Guardian::Watch(pid_t leader) {
  const std::optional<ProcessFacts> facts = FactsOf(leader);
  Send(kWatch, leader, facts ? facts->started : 0);
}

void Guardian::Forget(pid_t leader) { Send(kForget, leader, 0); }

void Guardian::Send(int32_t kind, pid_t leader, uint64_t started) {
  const Message message{.kind = kind, .leader = leader, .started = started};
  // Nothing can be done about a guardian that is dead or does not read.
  [[maybe_unused]] const ssize_t sent =
      send(socket_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace muster
