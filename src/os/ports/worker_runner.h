// Worker processes, as their supervisor sees them: a command goes in, an end comes out. They are
// real in production and simulated in the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace muster {

struct WorkerCommand {
  std::vector<std::string> arguments{};    ///< The program first: a path, or a name to be found on
                                           ///< the PATH of `environment`.
  std::vector<std::string> environment{};  ///< "NAME=value": all that it gets.
  std::string output_path{};  ///< Where its standard output goes; empty: where ours goes.
  std::string error_path{};   ///< And its standard error.
  std::vector<int> cpus{};    ///< It may run on these only; empty: on all of this process.
};

class WorkerRunner {
 public:
  /// `pid` distinguishes a worker from earlier ones with its number; `code` is its exit status, or
  /// the negative number of the signal that ended it.
  using OnEnd = std::function<void(size_t worker, int64_t pid, int code)>;

  virtual ~WorkerRunner() = default;

  /// Starts worker number `worker`, whose predecessor has ended. Returns its pid. kNotFound,
  /// kInvalid: there is no such program, or it cannot be run; kUnavailable: the system refuses.
  virtual Result<int64_t> Start(size_t worker, const WorkerCommand& command) = 0;
  /// To the worker and its descendants. SIGKILL also reaches descendants that it has abandoned.
  virtual void Signal(size_t worker, int signal) = 0;
  /// Ends what is left of all workers that have ended, and waits for that, within limits.
  virtual void Sweep() = 0;
};

}  // namespace muster
