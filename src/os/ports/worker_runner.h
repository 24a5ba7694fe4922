// Runs worker processes for their supervisor, which passes a command and receives the end of the
// process. They are real in production and simulated in the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace muster {

/// The number of the first descriptor in a worker that is not a standard stream.
inline constexpr int kInheritedFd = 4;

struct WorkerCommand {
  std::vector<std::string> arguments{};    ///< The program first: a path, or a name to be found on
                                           ///< the PATH of `environment`.
  std::vector<std::string> environment{};  ///< "NAME=value": the whole environment.
  std::string output_path{};  ///< Where its standard output goes; empty: to that of this process.
  std::string error_path{};   ///< Where its standard error goes.
  std::vector<int> descriptors{};  ///< Of this process, which it gets as kInheritedFd, and so on.
  std::vector<int> cpus{};  ///< The only CPUs that it may run on; empty: all CPUs of this process.
};

class WorkerRunner {
 public:
  /// `pid` distinguishes a worker from earlier workers with the same number; `code` is its exit
  /// status, or the negative number of the signal that ended it.
  using OnEnd = std::function<void(size_t worker, int64_t pid, int code)>;

  virtual ~WorkerRunner() = default;

  /// Starts worker number `worker`, whose predecessor has ended. Returns its pid. kNotFound,
  /// kInvalid: there is no such program, or it cannot be run; kUnavailable: the system refuses.
  virtual Result<int64_t> Start(size_t worker, const WorkerCommand& command) = 0;
  /// Signals the worker and its descendants. SIGKILL also reaches its orphaned descendants.
  virtual void Signal(size_t worker, int signal) = 0;
  /// Ends all remaining descendants of workers that have ended, and waits for their end within
  /// limits.
  virtual void Sweep() = 0;
  /// When all workers have ended: names the remaining descendants, such as "sync.py (pid 12)", and
  /// sends them `signal`, unless it is 0.
  virtual std::vector<std::string> Leftovers(int signal = 0) = 0;
};

}  // namespace muster
