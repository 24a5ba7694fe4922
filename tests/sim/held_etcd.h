// An etcd for tests of its writers. Nothing happens to a transaction until the test decides; being
// executed, answered and lost are three separate events. Its data is that of the simulator's etcd.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etcd/etcd_port.h"
#include "sim/etcd_state.h"

namespace muster::sim {

class HeldEtcd final : public Etcd {
 public:
  explicit HeldEtcd(Loop& loop) : loop_(loop) {}

  struct Call {
    EtcdTransaction transaction;
    std::function<void(Result<EtcdAnswer>)> done;  ///< Null: it was answered.
    std::optional<Result<EtcdAnswer>> made{};      ///< The result, once it was executed.
  };

  // --- Events of a call. A call may be executed long after it has failed.
  void Make(size_t call) { calls.at(call).made = state.Commit(calls.at(call).transaction); }
  void Answer(size_t call) { Finish(call, *calls.at(call).made); }
  void Lose(size_t call) { Finish(call, Error{Code::kTimeout, "no answer"}); }
  void Succeed(size_t call) {
    Make(call);
    Answer(call);
  }
  /// Calls without an answer so far.
  std::vector<size_t> Open() const {
    std::vector<size_t> open;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].done) open.push_back(i);
    }
    return open;
  }
  /// The keys that a call writes or deletes, in order, without the turn.
  std::vector<std::string> KeysOf(size_t call) const {
    std::vector<std::string> keys;
    for (const EtcdOperation& each : calls.at(call).transaction.then) {
      if (each.kind == EtcdOperation::Kind::kGet || each.range.begin.ends_with("turn")) continue;
      keys.push_back((each.kind == EtcdOperation::Kind::kDelete ? "-" : "") + each.range.begin);
    }
    return keys;
  }
  /// A write of another client, which happens at once.
  EtcdAnswer By(EtcdTransaction transaction) {
    Result<EtcdAnswer> answer = state.Commit(transaction);
    EXPECT_TRUE(answer);
    return *answer;
  }
  std::string ValueOf(const std::string& key) const {
    const EtcdPair* pair = state.Find(key);
    return pair == nullptr ? "" : pair->value;
  }

  /// All watches receive what has changed.
  void Tell() {
    for (size_t i = 0; i < watches_.size(); ++i) {
      const auto watch = watches_[i].lock();
      if (!watch) continue;
      const auto changes = state.ChangesFrom(watch->range, watch->next);
      watch->next = state.revision() + 1;
      if (!changes.empty()) watch->watcher.OnChanges(changes);
    }
  }
  /// ... or that the connection was lost.
  void Trouble() {
    for (size_t i = 0; i < watches_.size(); ++i) {
      if (const auto watch = watches_[i].lock()) watch->watcher.OnTrouble("connection lost");
    }
  }

  void Commit(EtcdTransaction transaction, Duration,
              std::function<void(Result<EtcdAnswer>)> done) override {
    calls.push_back({std::move(transaction), std::move(done)});
  }
  void Grant(Duration ttl, Duration, std::function<void(Result<EtcdLease>)> done) override {
    loop_.Post([done, lease = state.Grant(ttl, loop_.Now())] { done(lease); });
  }
  void KeepAlive(int64_t lease, Duration, std::function<void(Result<Duration>)> done) override {
    loop_.Post([done, left = state.KeepAlive(lease, loop_.Now())] { done(left); });
  }
  void Revoke(int64_t lease, Duration, std::function<void(Status)> done) override {
    loop_.Post([done, ended = state.Revoke(lease)] { done(ended); });
  }
  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override {
    auto watched = std::make_shared<Watched>(Watched{range, revision, watcher});
    watches_.push_back(watched);
    return std::make_unique<Handle>(std::move(watched));
  }
  std::string Describe() const override { return "etcd in a hand"; }

  EtcdState state{1};
  std::vector<Call> calls;  ///< All, in their order.

 private:
  struct Watched {
    EtcdRange range;
    int64_t next;
    EtcdWatcher& watcher;
  };
  struct Handle final : EtcdWatch {
    explicit Handle(std::shared_ptr<Watched> watched) : watched_(std::move(watched)) {}
    std::shared_ptr<Watched> watched_;
  };

  void Finish(size_t call, Result<EtcdAnswer> result) {
    const auto done = std::exchange(calls.at(call).done, nullptr);
    ASSERT_TRUE(done) << "call " << call << " was answered before";
    done(std::move(result));
  }

  Loop& loop_;
  std::vector<std::weak_ptr<Watched>> watches_;
};

}  // namespace muster::sim
