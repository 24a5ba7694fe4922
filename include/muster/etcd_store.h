// EtcdStore: a store in an etcd cluster (v3), which survives the loss of any machine of the job.
//
// Every operation is one transaction of etcd, or a loop of them that ends when no other client was
// faster; waiting is a watch. The keys have a prefix, and are readable with etcdctl:
// docs/internals/etcd.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/etcd.h"
#include "muster/store.h"

namespace muster {

class EtcdCalls;

/// Unlike other stores, one object serves many threads at a time; they do not block each other.
///
/// Calls to a cluster that is out of reach are repeated until Timeout(). NetworkError: it stayed
/// out of reach; or, at once, it is unknown whether a write happened, which the message says. The
/// store can be used afterwards. std::invalid_argument also for requests that etcd refuses:
/// above 1.5 MiB, with a wrong password, or without permission for the key.
class EtcdStore final : public Store {
 public:
  static constexpr std::string_view kDefaultPrefix = "/muster/store";

  /// Connects. options.timeout limits that, and is the store's Timeout() afterwards. NetworkError
  /// if no endpoint answers; std::invalid_argument for invalid options, or if etcd refuses access.
  /// In the component muster::etcd.
  explicit EtcdStore(const EtcdOptions& options);
  /// On a shared connection. All keys are written under `lease`; 0: without one.
  EtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix, milliseconds timeout,
            int64_t lease = 0);
  ~EtcdStore() override;

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
  /// Atomic for up to 128 keys; more are read, or set, 128 at a time.
  std::vector<std::string> MultiGet(const std::vector<std::string>& keys) override;
  void MultiSet(const std::vector<std::string>& keys,
                const std::vector<std::string>& values) override;
  bool HasExtendedApi() const override { return true; }
  void QueuePush(std::string_view key, std::string_view value) override;
  std::string QueuePop(std::string_view key, PopMode mode = PopMode::kWait) override;
  int64_t QueueLen(std::string_view key) override;
  /// Another object on the same connection.
  std::shared_ptr<Store> Clone() override;
  milliseconds Timeout() const override;
  void SetTimeout(milliseconds timeout) override;

  /// Of all its keys in etcd.
  const std::string& prefix() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
