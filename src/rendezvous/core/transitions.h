// Applies actions to the state. Pure: the wall clock's reading is a parameter, because it is
// written for PyTorch's agents, which compare it with their own clocks. No decision here uses it.
#pragma once

#include "rendezvous/core/node.h"
#include "rendezvous/core/operations.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/state.h"

namespace muster {

/// Applies an action of `self` that changes the state (not kSync, kFinish, kRestore or an error).
void Apply(Action action, const Node& self, const RunSettings& settings, WallTime now,
           RendezvousState* state);

/// Puts back a member of a complete round that others have declared lost (kRestore).
void Restore(const Node& self, int64_t rank, WallTime now, RendezvousState* state);

/// Removes silent nodes from every list. The ranks of the others do not change.
void Purge(const std::set<Node>& silent, const RunSettings& settings, RendezvousState* state);

}  // namespace muster
