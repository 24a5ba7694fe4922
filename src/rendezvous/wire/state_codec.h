// A rendezvous state as PyTorch's agents and muster serialize it: a pickle. What is read is
// untrusted: any client on the network may have written it. Nothing in it is executed, and
// everything is checked before it is used.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "rendezvous/core/state.h"

namespace muster::wire {

/// Reads a pickle of protocol 4 or 5. Attributes that are not known, of the state and of its nodes,
/// are kept for WriteState(). Times without a zone are read as UTC and noted (`naive_times`).
/// Takes time and memory in proportion to the bytes. kProtocol, with what was found and where: all
/// that is not a state.
Result<RendezvousState> ReadState(std::string_view pickle);

/// A pickle of protocol 4. ReadState() gives the same state again, and Python one with the same
/// attributes. Equal states give equal bytes here, but not in Python: never compare states by their
/// bytes.
///
/// The address of every node is UTF-8 and within kNodeAddressBytesMax, or this aborts: no peer
/// could read the state. In `closed_by`, which is for people, what is not a character is replaced.
/// Times outside the years 1 to 9999 become the nearest ones inside. `unknown_of_nodes` counts for
/// nodes of the state only.
std::string WriteState(const RendezvousState& state);

}  // namespace muster::wire
