// What a rendezvous throws. The classes mirror those of torch.distributed.elastic.rendezvous.
// Arguments that can never work are std::invalid_argument.
#pragma once

#include "muster/error.h"

namespace muster {

/// Root of all rendezvous errors.
class RendezvousError : public DistError {
 public:
  using DistError::DistError;
};

/// The rendezvous is closed: this run will never form another round. Names the node that closed it,
/// if known.
class RendezvousClosedError : public RendezvousError {
 public:
  using RendezvousError::RendezvousError;
};

/// The operation did not finish in time. Says what was missing.
class RendezvousTimeoutError : public RendezvousError {
 public:
  using RendezvousError::RendezvousError;
};

/// The backend cannot be reached, or did not answer in time.
class RendezvousConnectionError : public RendezvousError {
 public:
  using RendezvousError::RendezvousError;
};

/// What the backend holds is not a rendezvous state. Says what was found instead.
class RendezvousStateError : public RendezvousError {
 public:
  using RendezvousError::RendezvousError;
};

/// The rendezvous was closed while this node was a spare: an orderly way out, not a failure.
class RendezvousGracefulExitError : public RendezvousError {
 public:
  using RendezvousError::RendezvousError;
};

}  // namespace muster
