// A store's operations as transactions and watches of etcd. Any thread, any number of calls at a
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "etcd/calls.h"
#include "etcd/layout.h"
#include "muster/etcd.h"
#include "muster/store.h"

namespace muster {

class EtcdStore final : public Store {
 public:
  static constexpr std::string_view kDefaultPrefix = "/muster/store";

  /// See OpenEtcdStore().
  explicit EtcdStore(const EtcdOptions& options);
  /// On a shared connection. All keys are written under `lease`; 0: without one. Throws if etcd
  /// does not answer, or does not permit reading.
  EtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix, milliseconds timeout,
            int64_t lease = 0);

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
  std::shared_ptr<Store> Clone() override;
  milliseconds Timeout() const override { return timeout_; }
  void SetTimeout(milliseconds timeout) override { timeout_ = timeout; }

  const std::string& prefix() const { return prefix_; }

 private:
  using Keys = std::vector<std::string>;

  /// A call of this store: what it is, for messages ("Set of 'k'"), and when it ends. Timeouts of
  /// zero or less are no limit.
  struct Operation {
    std::string_view what;
    std::string key;
    milliseconds limit;
    Instant deadline;
  };
  /// Keys that do not exist yet.
  struct Missing {
    std::set<std::string, std::less<>> keys;
    bool or_queues = false;
  };
  struct Tail;

  // The functions below throw what the operation shall throw.

  Operation Begin(std::string_view what, std::string_view key) const {
    return Begin(what, key, Timeout());
  }
  Operation Begin(std::string_view what, std::string_view key, milliseconds limit) const;
  EtcdOperation Put(std::string etcd_key, std::string_view value) const;
  EtcdAnswer Commit(const Operation& operation, const EtcdTransaction& transaction) const;
  /// Reads of any number, in transactions of as many as etcd takes. `revision`: of the first one.
  std::vector<EtcdAnswer::Result> Read(const Operation& operation,
                                       const std::vector<EtcdOperation>& reads,
                                       int64_t& revision) const;
  /// Reads a value and replaces it by the result of `next`; again, if another client wrote
  /// meanwhile. nullopt from `next`: the value stays.
  using Next = std::function<std::optional<std::string>(const EtcdPair* present)>;
  void Replace(const Operation& operation, const Next& next) const;
  /// Waits before a write is tried again because other clients were faster `lost` times.
  void PauseAfterLoss(const Operation& operation, Backoff& backoff, int64_t lost) const;
  Backoff NewBackoff() const;
  /// EtcdCalls::Await(), with an error for the caller: which of the keys are missing. False: etcd
  /// has compacted the revision; read again.
  bool AwaitChange(const Operation& operation, const std::vector<EtcdRange>& ranges,
                   int64_t revision, const std::function<bool(const EtcdChange&)>& enough,
                   const Missing& missing) const;
  static void MustFit(std::string_view what, std::string_view key, size_t bytes);
  void WaitFor(const Operation& operation, Missing missing) const;
  /// Removes the keys that exist. At the returned revision all others did not.
  int64_t FindMissing(const Operation& operation, Missing& missing) const;
  std::vector<EtcdRange> RangesOf(const Missing& missing) const;
  std::vector<EtcdOperation> LookAtTail(std::string_view key) const;
  Tail TailIn(const Operation& operation, const EtcdAnswer& answer) const;

  const std::shared_ptr<EtcdCalls> calls_;
  const std::string prefix_;
  const EtcdLayout layout_;
  const int64_t lease_;
  std::atomic<milliseconds> timeout_;
};

}  // namespace muster
