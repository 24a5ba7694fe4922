// The serialized form of a rendezvous state in PyTorch's agents and in muster: a pickle. Input is
// untrusted: any client on the network may have written it. Nothing in it is executed, and
// everything is checked before it is used.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "rendezvous/core/state.h"

namespace muster::wire {

/// Reads a pickle of protocol 4 or 5. Attributes that are not known, of the state and of its nodes,
/// are kept for WriteState(). Times without a zone are read as UTC and noted (`naive_times`). Takes
/// time and memory in proportion to the bytes. kProtocol, with what was found and where: the bytes
/// are not a state.
Result<RendezvousState> ReadState(std::string_view pickle);

/// A pickle of protocol 4. ReadState() gives the same state again, and Python one with the same
/// attributes. Equal states give equal bytes here, but not in Python: never compare states by their
/// bytes.
///
/// The address of every node is UTF-8 and within kNodeAddressBytesMax, or this aborts: no peer
/// could read the state. In `closed_by`, which is for people, invalid characters are replaced.
/// Times outside the years 1 to 9999 become the nearest times inside. `unknown_of_nodes` is written
/// only for nodes of the state.
std::string WriteState(const RendezvousState& state);

}  // namespace muster::wire
