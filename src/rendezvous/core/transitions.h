// What the actions do to the state. Pure: the wall clock's reading is handed in, to be written down
// for others.
#pragma once

#include "rendezvous/core/node.h"
#include "rendezvous/core/operations.h"
#include "rendezvous/core/rules.h"
#include "rendezvous/core/state.h"

namespace muster {

/// Applies an action of `self` that changes the state (not kSync, kFinish, kRestore or an error).
void Apply(Action action, const Node& self, const RendezvousRules& rules, WallTime now,
           RendezvousState* state);

/// Puts a member of a complete round back that others have taken for dead (kRestore).
void Restore(const Node& self, int64_t rank, WallTime now, RendezvousState* state);

/// Takes nodes that have fallen silent out of every list. Ranks of the others stay as they are.
void Purge(const std::set<Node>& silent, const RendezvousRules& rules, RendezvousState* state);

}  // namespace muster
