// The environment of a worker: everything in the launcher's, and the worker's place in the job
// under the names that PyTorch reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "launch/core/environment.h"
#include "launch/options/launch_options.h"
#include "launch/rendezvous_thread.h"

namespace muster {

struct WorkerSituation {
  Placement place{};
  size_t workers = 1;  ///< Of this node.
  bool uses_agent_store = true;
  size_t worker = 0;
  int64_t restarts = 0;
  std::string error_file{};  ///< Empty: it has none.
  std::string timer_file{};  ///< The watchdog's pipe. Empty: there is no watchdog.
};

/// Whether OMP_NUM_THREADS is set for the workers because the user has not set it: each of several
/// workers would otherwise use all cores of the machine.
bool LimitsThreads(const Environment& inherited, size_t workers);

/// kInvalid: CUDA_VISIBLE_DEVICES has fewer entries than there are workers that want one each.
Result<Environment> WorkerEnvironment(const Environment& inherited, const LaunchOptions& options,
                                      const WorkerSituation& situation);

/// "NAME=value".
std::vector<std::string> ToLines(const Environment& environment);

}  // namespace muster
