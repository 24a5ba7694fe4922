// Starts and stops worker processes: real ones in production, simulated ones in simulation.
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
  /// `pid` differs from that of the worker's predecessor; `code` is the exit status, or the
  /// negative number of the signal that ended it.
  using OnEnd = std::function<void(size_t worker, int64_t pid, int code)>;

  virtual ~WorkerRunner() = default;

  /// Starts worker number `worker`, whose predecessor has ended. Returns its pid. kNotFound,
  /// kInvalid: there is no such program, or it cannot be run; kUnavailable: the system refuses.
  virtual Result<int64_t> Start(size_t worker, const WorkerCommand& command) = 0;
  /// To the worker and its descendants. SIGKILL also reaches descendants that have detached.
  virtual void Signal(size_t worker, int signal) = 0;
  /// Kills the remaining descendants of all workers that have ended, and waits for their end,
  /// within limits.
  virtual void Sweep() = 0;
};

}  // namespace muster
