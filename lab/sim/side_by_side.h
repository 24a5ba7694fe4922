// Worlds that take turns: what a node costs where the others in memory are of other worlds.
//
// A world of 1,000 nodes lies in the processor's cache, one of 100,000 does not. A hundred of the
// former at a time take as much memory as one of the latter: what still differs is the cost of
// being many, and not the machine's.
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
  std::vector<int64_t> turns{};        ///< How often each was interrupted.
};

/// Plays all of them, a hundredth of a second of virtual time of each after the other; of
/// launchers, only until everything is healed. Each has a thread, of which one runs at a time.
/// `replay`: the command that repeats one of them. What is thrown ends the program.
SideBySide PlaySideBySide(const std::vector<Plan>& plans,
                          const std::function<std::string(const Plan&)>& replay) noexcept;

}  // namespace muster::sim
