// Whether a set of nodes is one whole round.
#pragma once

#include <vector>

#include "rendezvous/core/session.h"

namespace muster::load {

/// For the assignments of all nodes: every rank once, one world and one round for all. An empty
/// list is not a round.
bool IsWholeRound(const std::vector<const Push*>& assignments);

}  // namespace muster::load
