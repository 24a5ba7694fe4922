// What muster's public functions throw. The classes mirror those that users of torch.distributed
// know.
#pragma once

#include <stdexcept>

namespace muster {

/// Root of all muster errors (torch.distributed.DistError).
struct DistError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A store operation failed (torch.distributed.DistStoreError).
struct StoreError : DistError {
  using DistError::DistError;
};

/// A key, an element or the other participants of a barrier did not arrive in time. The store is
/// still usable.
struct StoreTimeoutError : StoreError {
  using StoreError::StoreError;
};

/// Nothing to pop (torch.distributed.QueueEmptyError).
struct QueueEmptyError : StoreError {
  using StoreError::StoreError;
};

/// No connection, or it broke (torch.distributed.DistNetworkError). A TcpStore that threw this
/// during an operation cannot be used any more; Clone() opens a new connection.
struct NetworkError : DistError {
  using DistError::DistError;
};

/// The caller has interrupted a wait (muster/interruption.h).
struct InterruptedError : DistError {
  using DistError::DistError;
};

/// This kind of store does not support the operation.
struct NotImplementedError : DistError {
  using DistError::DistError;
};

}  // namespace muster
