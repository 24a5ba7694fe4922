#include "launch/workers/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/posix/forking.h"
#include "os/posix/process_tree.h"

namespace muster {

namespace {

constexpr int kFarewellMs = 1000;
constexpr Duration kCleanUpMax = 10s;

enum MessageKind : int32_t { kWatch, kForget, kFarewell };

// One datagram each, so that none is ever read in part.
struct Message {
  int32_t kind = kWatch;
  pid_t leader = 0;
  uint64_t started = 0;  // when the leader was: whoever has its number later is another
};

Error SystemError(std::string_view what) {
  return Error{Code::kUnavailable, Concat("cannot guard workers: ", what, ": ",
                                          std::string_view(std::strerror(errno)))};
}

/// What the guardian does in its own process.
class Vigil {
 public:
  Vigil(std::string mark, const Cgroup* cgroup, int line, int launcher)
      : cgroup_(cgroup), line_(line), launcher_(launcher) {
    kin_.marks.push_back(std::move(mark));
  }

  void Keep() {
    std::array<pollfd, 2> events{pollfd{.fd = line_, .events = POLLIN, .revents = 0},
                                 pollfd{.fd = launcher_, .events = POLLIN, .revents = 0}};
    while (true) {
      if (poll(events.data(), events.size(), -1) < 0) continue;
      // The launcher's last words may be a farewell: first the line, then its death.
      while (const std::optional<Message> message = Hear()) {
        if (message->kind == kFarewell) return;
        Note(*message);
      }
      // The line alone can end too, if the launcher is beyond saying anything. It can also stay
      // open after its death, in a fork of it.
      if (events[1].revents != 0 || (events[0].revents & POLLHUP) != 0) return CleanUp();
    }
  }

 private:
  std::optional<Message> Hear() const {
    Message message;
    const ssize_t got = recv(line_, &message, sizeof message, MSG_DONTWAIT);
    if (got != static_cast<ssize_t>(sizeof message)) return std::nullopt;
    return message;
  }

  void Note(const Message& message) {
    std::erase_if(kin_.leaders, [&](const Leader& known) { return known.pid == message.leader; });
    if (message.kind == kWatch) kin_.leaders.emplace_back(message.leader, message.started);
  }

  void CleanUp() const {
    if (cgroup_ != nullptr) cgroup_->End(kCleanUpMax);
    EndKin(kin_, kCleanUpMax);
    if (cgroup_ != nullptr) cgroup_->Remove();
  }

  Kinship kin_;
  const Cgroup* const cgroup_;
  const int line_;
  const int launcher_;
};

/// In the new process: leaves its parent's session, signals, descriptors and folder. Returns false
/// if there is nothing to listen with.
bool Detach(int line, int launcher) {
  setsid();
  prctl(PR_SET_NAME, "muster-guardian");
  if (dup2(line, 3) < 0 || dup2(launcher, 4) < 0) return false;
  CloseFrom(5);
  // Nobody may wait for the end of our launcher's output because of us; and nothing that is opened
  // later may be taken for it.
  const int nothing = open("/dev/null", O_RDWR);
  for (int standard = 0; standard < 3; ++standard) dup2(nothing, standard);
  CloseFrom(5);
  ResetSignals();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(signal, &ignore, nullptr);
  }
  UnblockSignals();
  return chdir("/") == 0;
}

}  // namespace

Result<std::unique_ptr<Guardian>> Guardian::Start(const std::string& mark, const Cgroup* cgroup) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return SystemError("socketpair");
  // Above the numbers that they will have there, so that none is overwritten before it is moved.
  OwnedFd ours = MoveTo(OwnedFd(ends[0]), 5);
  const OwnedFd theirs = MoveTo(OwnedFd(ends[1]), 5);
  OwnedFd launcher(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!launcher.is_open()) return SystemError("pidfd_open (Linux 5.3 or newer is needed)");
  launcher = MoveTo(std::move(launcher), 5);
  if (!ours.is_open() || !theirs.is_open() || !launcher.is_open()) return SystemError("fcntl");
  pid_t pid = 0;
  {
    const AllSignalsBlocked quiet;  // none may meet a handler of ours in the new process
    pid = fork();
    if (pid == 0) {
      if (Detach(theirs.get(), launcher.get())) Vigil(mark, cgroup, 3, 4).Keep();
      _exit(0);
    }
  }
  if (pid < 0) return SystemError("fork");
  return std::unique_ptr<Guardian>(new Guardian(pid, std::move(ours)));
}

Guardian::~Guardian() {
  Say(kFarewell, 0, 0);
  line_.Close();
  if (pid_ == 0) return;
  const OwnedFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  // Somebody may have stopped it.
  if (!handle.is_open() || poll(&ended, 1, kFarewellMs) != 1) kill(pid_, SIGKILL);
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
  Say(kWatch, leader, facts ? facts->started : 0);
}

void Guardian::Forget(pid_t leader) { Say(kForget, leader, 0); }

void Guardian::Say(int32_t kind, pid_t leader, uint64_t started) {
  const Message message{.kind = kind, .leader = leader, .started = started};
  // If it is dead or does not listen, there is nothing that we could do about it.
  [[maybe_unused]] const ssize_t said =
      send(line_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace muster
