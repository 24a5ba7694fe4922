// The handler of backend "muster": a session with the coordinator of a server, or the c10d backend
// where the server turns out to be PyTorch's.
#pragma once

#include "muster/coordinated_rendezvous.h"
#include "os/ports/system.h"

namespace muster {

/// Like the public function, in `system`.
RendezvousHandlerPtr CreateCoordinatedHandler(CoordinatedRendezvousOptions options, System& system);

}  // namespace muster
