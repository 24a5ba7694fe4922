// PrefixStore: the keys of another store that begin with a prefix.
//
// Key "k" under prefix "p" is "p/k" in the inner store; nested, the inner prefix comes first.
// Timeout, SetTimeout, GetNumKeys and HasExtendedApi are the inner store's. Barrier() uses counter
// keys ("p/k/num_members", "p/k/last_member"), also over a TcpStore, as PyTorch's does.
#pragma once

#include "muster/store.h"

namespace muster {

class PrefixStore final : public Store {
 public:
  /// std::invalid_argument if `store` is null.
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);

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
  /// Keys under this prefix, without it.
  std::vector<std::string> ListKeys() override;
  void Append(std::string_view key, std::string_view suffix) override;
  std::vector<std::string> MultiGet(const std::vector<std::string>& keys) override;
  void MultiSet(const std::vector<std::string>& keys,
                const std::vector<std::string>& values) override;
  bool HasExtendedApi() const override;
  void QueuePush(std::string_view key, std::string_view value) override;
  std::string QueuePop(std::string_view key, PopMode mode = PopMode::kWait) override;
  int64_t QueueLen(std::string_view key) override;
  std::shared_ptr<Store> Clone() override;
  milliseconds Timeout() const override;
  void SetTimeout(milliseconds timeout) override;

  const std::string& prefix() const { return prefix_; }
  const std::shared_ptr<Store>& underlying() const { return store_; }
  /// The innermost store that is not a PrefixStore.
  std::shared_ptr<Store> underlying_non_prefix() const;

 private:
  std::string Prefixed(std::string_view key) const;
  std::vector<std::string> Prefixed(const std::vector<std::string>& keys) const;

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

}  // namespace muster
