// Another timeout of a store, for a while.
#pragma once

#include "muster/store.h"

namespace muster {

/// Gives a store another timeout for as long as this object lives; restored however that ends.
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
