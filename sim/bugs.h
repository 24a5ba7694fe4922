// The bugs that can be planted (base/planted.h), by name.
#pragma once

#include <span>
#include <string_view>

#include "base/planted.h"
#include "sim/plan.h"

namespace muster::sim {

struct PlantedBug {
  Bug bug;
  std::string_view name;
  Driver driver;  ///< Whose runs can show it.
};

std::span<const PlantedBug> AllBugs();
/// From now on, in all worlds. False in a build that is not instrumented.
bool Plant(Bug bug);

}  // namespace muster::sim
