// FileStore: a store in a file that processes share. The format is PyTorch's: its FileStore may use
// the same file at the same time.
#pragma once

#include <memory>
#include <string>

#include "muster/store.h"

namespace muster {

class FileStore final : public Store {
 public:
  /// Creates the file if it is missing. With a `world_size` of 0 or more, the file is removed when
  /// the last of (at least) that many FileStores on it is destroyed; with the default it stays.
  explicit FileStore(std::string path, int world_size = -1);
  ~FileStore() override;

  using Store::Barrier;
  using Store::Wait;
  void Set(std::string_view key, std::string_view value) override;
  std::string Get(std::string_view key) override;
  int64_t Add(std::string_view key, int64_t delta) override;
  std::string CompareSet(std::string_view key, std::string_view expected,
                         std::string_view desired) override;
  bool Check(const std::vector<std::string>& keys) override;
  void Wait(const std::vector<std::string>& keys, milliseconds timeout) override;
  bool DeleteKey(std::string_view key) override;
  int64_t GetNumKeys() override;
  std::vector<std::string> ListKeys() override;
  void Append(std::string_view key, std::string_view suffix) override;
  /// A new FileStore on the same path.
  std::shared_ptr<Store> Clone() override;
  milliseconds Timeout() const override;
  void SetTimeout(milliseconds timeout) override;

  const std::string& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
