// Functions for the code around a fork. All but the last two may be called between fork and exec.
#pragma once

#include <signal.h>

#include <vector>

#include "os/posix/owned_fd.h"

namespace muster {

/// While it exists, the calling thread receives no signals: between fork and exec, a signal would
/// run a handler of the parent in the child.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked();
  ~AllSignalsBlocked();
  AllSignalsBlocked(AllSignalsBlocked&&) = delete;

 private:
  sigset_t before_;
};

/// Resets all signals to their default, including ignored ones, and drops pending ones. They stay
/// blocked.
void ResetSignals();

/// Empties the signal mask.
void UnblockSignals();

/// Closes all descriptors from `first` on.
void CloseFrom(int first);

/// The same file under a number that is at least `least`, closed on exec; closed if that fails. A
/// process that was started without standard streams gets their numbers for the next files it
/// opens.
OwnedFd MoveTo(OwnedFd fd, int least);

sigset_t SetOf(const std::vector<int>& signals);

}  // namespace muster
