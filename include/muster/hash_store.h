// HashStore: a store inside this process, for its threads.
#pragma once

#include <memory>

#include "muster/store.h"

namespace muster {

class HashStore final : public Store, public std::enable_shared_from_this<HashStore> {
 public:
  static std::shared_ptr<HashStore> Create();
  ~HashStore() override;

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
  std::vector<std::string> MultiGet(const std::vector<std::string>& keys) override;
  void MultiSet(const std::vector<std::string>& keys,
                const std::vector<std::string>& values) override;
  bool HasExtendedApi() const override { return true; }
  void QueuePush(std::string_view key, std::string_view value) override;
  std::string QueuePop(std::string_view key, PopMode mode = PopMode::kWait) override;
  int64_t QueueLen(std::string_view key) override;
  /// The same object.
  std::shared_ptr<Store> Clone() override { return shared_from_this(); }
  milliseconds Timeout() const override;
  void SetTimeout(milliseconds timeout) override;

 private:
  struct Impl;
  class Call;
  HashStore();
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
