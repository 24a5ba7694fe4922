// HashStore: a store inside this process, for its threads.
#pragma once

#include "muster/backed_store.h"

namespace muster {

class HashStore final : public BackedStore, public std::enable_shared_from_this<HashStore> {
 public:
  static std::shared_ptr<HashStore> Create();

  /// The same object.
  std::shared_ptr<Store> Clone() override { return shared_from_this(); }

 private:
  HashStore();
};

}  // namespace muster
