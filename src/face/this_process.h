// This process as handlers find it: clock, threads, sockets.
#pragma once

#include <string>

#include "core/rendezvous/node.h"
#include "ports/surroundings.h"

namespace muster {

/// There is one, and nothing in it changes but the number of nodes made.
Surroundings& ThisProcess();

/// Another node of the process each time. std::invalid_argument for an address that others could
/// not read.
Node NewNode(Surroundings& around, const std::string& addr);

}  // namespace muster
