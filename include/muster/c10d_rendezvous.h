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

/// Needs `store` for itself: no other code may block on it. std::invalid_argument if the run id is
/// empty or there is no store; RendezvousConnectionError. A lost connection fails the current call;
/// the next call opens another. News are keys next to the state's key.
std::unique_ptr<RendezvousBackend> CreateC10dBackend(std::shared_ptr<Store> store,
                                                     const std::string& run_id);

/// The backend, and another connection to the same data, for everything else. Options: store_type
/// (tcp, file), is_host (default: whether the endpoint is this machine) and read_timeout (seconds,
/// 60). Hosts the store if is_host is true. If is_host is not set, the endpoint is this machine and
/// its port is in use, connects instead. RendezvousConnectionError, std::invalid_argument.
std::pair<std::unique_ptr<RendezvousBackend>, std::shared_ptr<Store>> CreateC10dBackend(
    const RendezvousParameters& parameters);

/// A dynamic rendezvous on this backend: what the registry creates for "c10d".
RendezvousHandlerPtr CreateC10dHandler(const RendezvousParameters& parameters);

}  // namespace muster
