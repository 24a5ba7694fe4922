// What a rendezvous throws. The classes mirror those of torch.distributed.elastic.rendezvous.
// Arguments that can never work are std::invalid_argument.
#pragma once

#include "muster/error.h"

namespace muster {

/// Root of all rendezvous errors.
struct RendezvousError : DistError {
  using DistError::DistError;
};

/// The rendezvous is closed: this run will never form another round. Names the node that closed it,
/// if known.
struct RendezvousClosedError : RendezvousError {
  using RendezvousError::RendezvousError;
};

/// The operation did not finish in time. Says what was missing.
struct RendezvousTimeoutError : RendezvousError {
  using RendezvousError::RendezvousError;
};

/// The backend cannot be reached, or did not answer in time.
struct RendezvousConnectionError : RendezvousError {
  using RendezvousError::RendezvousError;
};

/// What the backend holds is not a rendezvous state. Says what was found instead.
struct RendezvousStateError : RendezvousError {
  using RendezvousError::RendezvousError;
};

/// The rendezvous was closed while this node was a spare: an orderly way out, not a failure.
struct RendezvousGracefulExitError : RendezvousError {
  using RendezvousError::RendezvousError;
};

}  // namespace muster
