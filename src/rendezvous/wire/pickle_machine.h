// Runs a pickle, as far as it can be one of a rendezvous state: a machine with a stack, a memo and
// an allow-list. It makes values and nothing else: no name is looked up, nothing is called, and a
// class that is not on the list ends it. Memory and time are proportional to the bytes, and bounded
// by base/limits.h.
#pragma once

#include <string_view>

#include "base/result.h"
#include "rendezvous/wire/pickle_tree.h"

namespace muster::wire {

/// kProtocol, with what was found and where: bytes that are not such a pickle. Times have been
/// checked and computed; attributes have not been looked at. The tree shows parts of `bytes`.
Result<PickleTree> RunPickle(std::string_view bytes);

}  // namespace muster::wire
