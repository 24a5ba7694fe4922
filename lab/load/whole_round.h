// Whether nodes that have met are one whole round.
#pragma once

#include <vector>

#include "rendezvous/core/session.h"

namespace muster::load {

/// Of the assignments of all nodes there are: every rank once, one world and one round for all.
/// No nodes are no round.
bool IsWholeRound(const std::vector<const Push*>& assignments);

}  // namespace muster::load
