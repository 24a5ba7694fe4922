// The name of a node: address, process id and a number that no other node of the process has.
#pragma once

#include <string>

#include "os/ports/system.h"
#include "rendezvous/core/node.h"

namespace muster {

/// Creates a new node of the process. std::invalid_argument for an address that others could not
/// read.
Node NewNode(System& system, const std::string& addr);

}  // namespace muster
