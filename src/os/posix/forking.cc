#include "os/posix/forking.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace muster {

namespace {

// The kernel's structure, not the C library's: the C library reserves two signals and refuses to
// change them, but leaves one of them ignored in processes that posix_spawn() starts (make uses
// it).
struct KernelAction {
  sighandler_t handler = nullptr;
  unsigned long flags = 0;
  void (*restorer)() = nullptr;
  uint64_t mask = 0;
};

void SetDisposition(int signal, sighandler_t disposition) {
  const KernelAction action{.handler = disposition};
  // Fails for SIGKILL and SIGSTOP, which cannot be changed.
  syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof action.mask);
}

}  // namespace

AllSignalsBlocked::AllSignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

AllSignalsBlocked::~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void ResetSignals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    SetDisposition(signal, SIG_IGN);  // drops it if it is pending
    SetDisposition(signal, SIG_DFL);
  }
}

void UnblockSignals() {
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

void CloseFrom(int first) {
  if (close_range(static_cast<unsigned>(first), ~0U, 0) == 0) return;
  // Kernels before 5.9 can only close one at a time.
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  for (int fd = first; fd < end; ++fd) close(fd);
}

OwnedFd MoveTo(OwnedFd fd, int least) {
  if (!fd.is_open() || fd.get() >= least) return fd;
  return OwnedFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, least));
}

sigset_t SetOf(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace muster
