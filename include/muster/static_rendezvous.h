// The static rendezvous: every node is configured with its rank; one address, no state.
#pragma once

#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

/// Options: rank (an integer from 0 to max_nodes - 1, also as text; required) and timeout (seconds,
/// 600; 0: no limit). Rank 0 serves the store at the endpoint. std::invalid_argument without a
/// rank, an endpoint or a port in it. NextRendezvous() throws what TcpStore does:
/// StoreTimeoutError, NetworkError.
RendezvousHandlerPtr CreateStaticHandler(const RendezvousParameters& parameters);

}  // namespace muster
