// The marks that rare branches leave (base/probe.h).
#pragma once

#include <span>

#include "base/probe.h"

namespace muster::sim {

/// All of the program; none in a build that is not instrumented.
std::span<Probe> AllProbes();

}  // namespace muster::sim
