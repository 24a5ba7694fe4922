// Bytes to a rendezvous state: what PyTorch's agents write, and what muster's write for them. The
// bytes come from a cell that anybody on the network may have written; nothing in them is run, and
// nothing is believed before it is checked.
#pragma once

#include <string_view>

#include "base/result.h"
#include "rendezvous/core/state.h"

namespace muster::wire {

/// Reads a pickle of protocol 4 or 5. Attributes that are not known, of the state and of its nodes,
/// are kept for WriteState(). Times without a zone are taken for UTC and noticed (`naive_times`).
/// Takes time and memory in proportion to the bytes. kProtocol, with what was found and where: all
/// that is not a state.
Result<RendezvousState> ReadState(std::string_view pickle);

}  // namespace muster::wire
