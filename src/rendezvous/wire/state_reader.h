// Bytes to a rendezvous state, as PyTorch's agents and muster write it. The bytes are untrusted:
// any client on the network may have written them. Nothing in them is executed, and everything is
// checked before it is used.
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
