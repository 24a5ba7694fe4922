// Changes the timeout of a store for a scope.
#pragma once

#include "muster/store.h"

namespace muster {

/// Gives a store another timeout for as long as this object lives, and then restores the former
/// one.
class ScopedStoreTimeout {
 public:
  ScopedStoreTimeout(Store& store, milliseconds timeout);
  ~ScopedStoreTimeout();
  ScopedStoreTimeout(const ScopedStoreTimeout&) = delete;
  ScopedStoreTimeout& operator=(const ScopedStoreTimeout&) = delete;

 private:
  Store& store_;
  const milliseconds before_;
};

}  // namespace muster
