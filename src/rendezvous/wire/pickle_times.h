// Times in a pickle: what the constructors of datetime's classes make of their arguments.
#pragma once

#include <span>

#include "base/result.h"
#include "rendezvous/wire/pickle_tree.h"

namespace muster::wire {

/// Fills in `made`, whose class (`of`) is one of datetime's. kProtocol, saying what is wrong with
/// the arguments.
Status MakeTime(const PickleTree& tree, std::span<const PickleItem> arguments, PickleValue& made);

}  // namespace muster::wire
