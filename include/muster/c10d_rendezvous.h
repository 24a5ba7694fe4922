// The c10d backend: the state of a rendezvous in a key of a store, as torchrun keeps it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"
#include "muster/store.h"

namespace muster {

/// Uses `store` for itself: nothing else may block on it. std::invalid_argument if the run id is
/// empty or there is no store; RendezvousConnectionError. A connection that is lost fails the call
/// under way; the next one makes another. News are keys next to the state's.
std::unique_ptr<RendezvousBackend> CreateC10dBackend(std::shared_ptr<Store> store,
                                                     const std::string& run_id);

/// The backend, and another connection to the same data, for everything else. Options: store_type
/// (tcp, file), is_host (default: whether the endpoint is this machine) and read_timeout (seconds,
/// 60). Hosts the store where that is decided; if it is not decided but the endpoint is here and
/// its port taken, connects instead. RendezvousConnectionError, std::invalid_argument.
std::pair<std::unique_ptr<RendezvousBackend>, std::shared_ptr<Store>> CreateC10dBackend(
    const RendezvousParameters& parameters);

/// A dynamic rendezvous on it: what the registry makes for "c10d".
RendezvousHandlerPtr CreateC10dHandler(const RendezvousParameters& parameters);

}  // namespace muster
