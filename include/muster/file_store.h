// FileStore: a store in a file that processes share. The format is PyTorch's: its FileStore may use
// the same file at the same time.
#pragma once

#include "muster/backed_store.h"

namespace muster {

class FileStore final : public BackedStore {
 public:
  /// Creates the file if it is missing. With a `world_size` of 0 or more, the file is removed when
  /// the last of (at least) that many FileStores on it is destroyed; with the default it stays.
  explicit FileStore(std::string path, int world_size = -1);
  ~FileStore() override;

  /// A new FileStore on the same path.
  std::shared_ptr<Store> Clone() override;

  const std::string& path() const;
};

}  // namespace muster
