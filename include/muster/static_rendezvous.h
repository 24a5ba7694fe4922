// The static rendezvous: every node is told its rank; one address, no state, no surprises.
#pragma once

#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

/// Options: rank (an integer, required) and timeout (seconds, 600). Rank 0 serves the store at the
/// endpoint. std::invalid_argument without a rank, an endpoint or a port in it.
RendezvousHandlerPtr CreateStaticHandler(const RendezvousParameters& parameters);

}  // namespace muster
