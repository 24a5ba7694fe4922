// What muster's public functions throw. The classes mirror those that users of torch.distributed
// know.
#pragma once

#include <stdexcept>

namespace muster {

/// Root of all muster errors (torch.distributed.DistError).
class DistError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A store operation failed (torch.distributed.DistStoreError).
class StoreError : public DistError {
 public:
  using DistError::DistError;
};

/// A key, an element or the other participants of a barrier did not arrive in time. The store is
/// still usable.
class StoreTimeoutError : public StoreError {
 public:
  using StoreError::StoreError;
};

/// Nothing to pop (torch.distributed.QueueEmptyError).
class QueueEmptyError : public StoreError {
 public:
  using StoreError::StoreError;
};

/// No connection, or it broke (torch.distributed.DistNetworkError). A TcpStore that threw this
/// during an operation cannot be used any more; Clone() opens a new connection.
class NetworkError : public DistError {
 public:
  using DistError::DistError;
};

/// The caller has interrupted a wait (muster/interruption.h).
class InterruptedError : public DistError {
 public:
  using DistError::DistError;
};

/// This kind of store does not support the operation.
class NotImplementedError : public DistError {
 public:
  using DistError::DistError;
};

}  // namespace muster
