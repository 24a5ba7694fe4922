// A rendezvous state to bytes that PyTorch's agents read: a pickle of protocol 4.
#pragma once

#include <string>

#include "rendezvous/core/state.h"

namespace muster::wire {

/// ReadState() gives the same state again, and Python one with the same attributes. Equal states
/// give equal bytes here, but not in Python: never compare states by their bytes.
///
/// The address of every node is UTF-8 and within kNodeAddressBytesMax, or this aborts: no peer
/// could read the state. In `closed_by`, which is for people, what is not a character is replaced.
/// Times outside the years 1 to 9999 become the nearest ones inside. `unknown_of_nodes` counts for
/// nodes of the state only.
std::string WriteState(const RendezvousState& state);

}  // namespace muster::wire
