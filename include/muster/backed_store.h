// BackedStore: what muster's own stores have in common. Include the header of one of them.
#pragma once

#include <atomic>

#include "muster/store.h"

namespace muster {

struct Answer;
struct Request;
class StoreBackend;

/// Every call is one request to a backend: a table in this process, a file, or a server. Derive
/// your own stores from Store.
class BackedStore : public Store {
 public:
  ~BackedStore() override;

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
  bool HasExtendedApi() const override;
  void QueuePush(std::string_view key, std::string_view value) override;
  std::string QueuePop(std::string_view key, PopMode mode = PopMode::kWait) override;
  int64_t QueueLen(std::string_view key) override;
  void Barrier(std::string_view key, int64_t world_size, milliseconds timeout) override;
  milliseconds Timeout() const override { return timeout_; }
  void SetTimeout(milliseconds timeout) override { timeout_ = timeout; }

 protected:
  explicit BackedStore(std::unique_ptr<StoreBackend> backend);
  template <typename Backend>
  Backend& backend() const {
    return static_cast<Backend&>(*backend_);
  }

 private:
  Answer Run(const Request& request) const;
  Answer Run(const Request& request, milliseconds timeout) const;

  const std::unique_ptr<StoreBackend> backend_;
  std::atomic<milliseconds> timeout_ = kDefaultStoreTimeout;
};

}  // namespace muster
