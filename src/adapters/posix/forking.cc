#include "adapters/posix/forking.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace muster {

namespace {

void SetDisposition(int signal, sighandler_t disposition) {
  struct sigaction action {};
  action.sa_handler = disposition;
  sigaction(signal, &action, nullptr);  // fails for SIGKILL and SIGSTOP, which cannot change
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
  // Kernels before 5.9 know only one at a time.
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  for (int fd = first; fd < end; ++fd) close(fd);
}

OwnedFd MoveTo(OwnedFd fd, int least) {
  if (!fd.is_open() || fd.get() >= least) return fd;
  return OwnedFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, least));
}

}  // namespace muster
