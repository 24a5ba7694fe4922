// Rendezvous handlers by the name of their backend.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

using RendezvousHandlerCreator = std::function<RendezvousHandlerPtr(const RendezvousParameters&)>;

// The registry of this process, from any thread. It knows "muster", "c10d" and "static"; "etcd" and
// "etcd-v2" are reserved; until EnableEtcd() was called, they report what is missing.

/// std::invalid_argument if the name is empty or belongs to another creator. Registering the same
/// plain function again changes nothing; two function objects are never the same.
void RegisterRendezvousBackend(std::string_view backend, RendezvousHandlerCreator creator);

/// In alphabetical order.
std::vector<std::string> RendezvousBackends();

/// Calls the creator registered for parameters.backend with these parameters. std::invalid_argument
/// if there is none; std::runtime_error if the handler reports another backend.
RendezvousHandlerPtr GetRendezvousHandler(const RendezvousParameters& parameters);

}  // namespace muster
