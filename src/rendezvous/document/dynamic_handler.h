// The handler of a dynamic rendezvous: runs the operations of one node, and sends its heartbeats.
#pragma once

#include <memory>
#include <string>

#include "muster/dynamic_rendezvous.h"
#include "os/ports/system.h"

namespace muster {

/// Like the public function, in `system`.
std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    RendezvousSettings settings, std::shared_ptr<Store> store,
    std::unique_ptr<RendezvousBackend> backend, const std::string& local_addr,
    RendezvousEventSink events, System& system);

}  // namespace muster
