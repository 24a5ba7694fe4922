// Worlds that take turns: the cost of a node when other worlds use the same memory.
//
// A world of 1,000 nodes fits into the processor's cache, one of 100,000 does not. A hundred of the
// former at a time take as much memory as one of the latter. The remaining difference is the cost
// of the number of nodes, not of the machine's cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/plan.h"
#include "sim/world.h"

namespace muster::sim {

struct SideBySide {
  std::vector<RunOutcome> outcomes{};  ///< In the order of the plans.
  double real_seconds = 0;             ///< Until the last was over.
  std::vector<int64_t> turns{};        ///< How often each world was interrupted.
};

/// Plays all of them, a hundredth of a second of virtual time of each after the other; launchers
/// only until everything is healed. Each has a thread, of which one runs at a time.
/// `replay`: the command that repeats one of them. An exception ends the program.
SideBySide PlaySideBySide(const std::vector<Plan>& plans,
                          const std::function<std::string(const Plan&)>& replay) noexcept;

}  // namespace muster::sim
