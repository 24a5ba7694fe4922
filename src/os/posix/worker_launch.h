// One start of a worker: fork and exec. Everything that can be prepared is prepared before the
// fork, and a failure of the exec is reported to the caller.
//
// The thread that calls Fork() must live as long as the worker: the kernel sends the parent-death
// signal when that thread ends, not when the process does.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "os/ports/worker_runner.h"
#include "os/posix/owned_fd.h"

namespace muster {

class WorkerLaunch {
 public:
  /// Finds the program and opens the files for its output. Adds `mark` to its environment.
  /// kNotFound, kInvalid, kUnavailable.
  static Result<WorkerLaunch> Prepare(const WorkerCommand& command, const std::string& mark);

  /// Starts a process that leads its own session, in the cgroup whose folder is open as `cgroup`;
  /// if that is refused, or -1, in the cgroup of this process. To be called once. kUnavailable.
  Result<pid_t> Fork(int cgroup);

  /// Waits until the program runs. Otherwise the process has ended or is about to, and must be
  /// reaped. kNotFound, kInvalid, kUnavailable.
  Status AwaitExec();

  /// Known after AwaitExec(): it could not enter the cgroup.
  bool was_refused_by_cgroup() const { return was_refused_by_cgroup_; }

 private:
  WorkerLaunch() = default;

  [[noreturn]] void Become(pid_t parent, int cgroup_members) const;

  std::string path_;  // of the program
  std::vector<std::string> arguments_;
  std::vector<std::string> environment_;
  std::vector<char*> argument_pointers_;
  std::vector<char*> environment_pointers_;
  OwnedFd output_;  // not open: unchanged
  OwnedFd error_;
  int error_fd_ = -1;  // of error_ or output_; -1: unchanged
  std::vector<unsigned long> cpu_mask_;
  OwnedFd report_;     // receives the error; closed by a successful exec
  OwnedFd reporting_;  // the other end of report_
  bool was_refused_by_cgroup_ = false;
};

}  // namespace muster
