// The marks that rare branches leave (base/instrumented.h).
#pragma once

#include <span>

#include "base/instrumented.h"

namespace muster::sim {

/// Of the rendezvous and its store; none in a build that is not instrumented.
std::span<Probe> AllProbes();
/// In branches that only launchers reach.
std::span<Probe> LaunchProbes();
/// In branches that only nodes of backend etcd reach.
std::span<Probe> EtcdProbes();

}  // namespace muster::sim
