// The simulator's etcd and a real one give the same answers to the same requests.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "etcd/test_client.h"
#include "sim/etcd_state.h"

namespace muster::test {
namespace {

using Condition = EtcdCondition::Kind;
using Operation = EtcdOperation::Kind;

constexpr int kTransactions = 1'500;

/// Transactions on few keys, so that conditions sometimes hold.
class Questions {
 public:
  explicit Questions(uint64_t seed) : prng_(seed) {}

  EtcdTransaction Next(int64_t revision, const std::vector<int64_t>& leases) {
    EtcdTransaction transaction;
    for (uint64_t i = prng_.Below(3); i > 0; --i)
      transaction.conditions.push_back(DrawCondition(revision));
    for (auto* side : {&transaction.then, &transaction.otherwise}) {
      for (uint64_t i = prng_.Below(4); i > 0; --i) side->push_back(DrawOperation(leases));
    }
    return transaction;
  }
  uint64_t Below(uint64_t n) { return prng_.Below(n); }

 private:
  std::string Key() { return std::string(1, static_cast<char>('a' + prng_.Below(6))); }
  std::string Value() { return std::to_string(prng_.Below(4)); }

  EtcdCondition DrawCondition(int64_t revision) {
    EtcdCondition condition{.kind = static_cast<Condition>(prng_.Below(3)), .key = Key()};
    condition.value = Value();
    if (prng_.Below(2) == 0)
      condition.revision = std::max<int64_t>(0, revision - static_cast<int64_t>(prng_.Below(12)));
    return condition;
  }

  EtcdOperation DrawOperation(const std::vector<int64_t>& leases) {
    EtcdOperation operation{.kind = static_cast<Operation>(prng_.Below(3)),
                            .range = {.begin = Key()}};
    if (operation.kind == Operation::kPut) {
      operation.value = Value();
      if (prng_.Below(3) == 0) operation.lease = leases[prng_.Below(leases.size())];
      return operation;
    }
    if (prng_.Below(2) == 0) operation.range.end = Key() + "x";
    if (operation.kind != Operation::kGet) return operation;
    // Not for deletions: etcd does not compare them with the other operations.
    if (prng_.Below(8) == 0) operation.range.end = std::string(1, '\0');
    operation.range.limit = static_cast<int64_t>(prng_.Below(3));
    operation.range.keys_only = prng_.Below(3) == 0;
    return operation;
  }

  Prng prng_;
};

/// The two sides have different lease ids.
class Names {
 public:
  void Add(int64_t real, int64_t simulated) { simulated_[real] = simulated; }
  int64_t Of(int64_t real) const {
    const auto found = simulated_.find(real);
    return found == simulated_.end() ? real : found->second;
  }
  EtcdTransaction Translate(EtcdTransaction transaction) const {
    for (auto* side : {&transaction.then, &transaction.otherwise}) {
      for (EtcdOperation& each : *side) each.lease = Of(each.lease);
    }
    return transaction;
  }

 private:
  std::map<int64_t, int64_t> simulated_;
};

class EtcdTwinTest : public EtcdTest {
 protected:
  void ExpectTheSame(const Result<EtcdAnswer>& real, const Result<EtcdAnswer>& simulated) {
    ASSERT_EQ(real.has_value(), simulated.has_value())
        << (real ? simulated.error().message : real.error().message);
    if (!real) {
      EXPECT_EQ(real.error().code, simulated.error().code) << real.error().message;
      return;
    }
    EXPECT_EQ(real->held, simulated->held);
    EXPECT_EQ(real->revision, simulated->revision);
    ASSERT_EQ(real->results.size(), simulated->results.size());
    for (size_t i = 0; i < real->results.size(); ++i) {
      EXPECT_EQ(real->results[i].count, simulated->results[i].count);
      std::vector<EtcdPair> pairs = real->results[i].pairs;
      for (EtcdPair& pair : pairs) pair.lease = names.Of(pair.lease);
      EXPECT_EQ(pairs, simulated->results[i].pairs);
    }
  }

  Names names;
};

TEST_F(EtcdTwinTest, TheSameTransactionsHaveTheSameAnswersAndTheSameHistory) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  sim::EtcdState twin(1);
  Questions questions(4711);
  std::vector<int64_t> leases{4711};  // there is no such lease
  int failed = 0;
  for (int i = 0; i < kTransactions && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    if (i % 100 == 0) {
      const auto lease = test_client.Grant(600s);
      ASSERT_TRUE(lease) << lease.error().message;
      names.Add(lease->id, twin.Grant(600s, {}).id);
      leases.push_back(lease->id);
    }
    if (i % 100 == 50) {
      const int64_t lease = leases[questions.Below(leases.size())];
      EXPECT_EQ(test_client.Revoke(lease).has_value(), twin.Revoke(names.Of(lease)).has_value());
    }
    const EtcdTransaction transaction = questions.Next(twin.revision(), leases);
    const auto answer = test_client.Commit(transaction);
    ExpectTheSame(answer, twin.Commit(names.Translate(transaction)));
    if (!answer) ++failed;
  }
  EXPECT_GT(failed, kTransactions / 50);
  EXPECT_GT(twin.revision(), kTransactions / 4);

  // The whole history, as a watch reports it.
  std::vector<std::string> history;
  for (const EtcdChange& each : twin.ChangesFrom({.begin = "a", .end = "z"}, 1))
    history.push_back(each.deleted ? "-" + each.pair.key : each.pair.key + "=" + each.pair.value);
  const TestWatcher watcher(test_client, {.begin = "a", .end = "z"}, 1);
  EXPECT_TRUE(watcher.HasReceived(history));
}

TEST_F(EtcdTwinTest, LimitsAreTheSame) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  sim::EtcdState twin(1);
  const auto ask = [&](const EtcdTransaction& transaction) {
    ExpectTheSame(test_client.Commit(transaction), twin.Commit(transaction));
  };
  for (const size_t count : {kEtcdOperationsMax, kEtcdOperationsMax + 1}) {
    EtcdTransaction puts;
    EtcdTransaction conditions;
    for (size_t i = 0; i < count; ++i) {
      puts.then.push_back(
          {.kind = Operation::kPut, .range = {.begin = std::to_string(i)}, .value = "x"});
      conditions.conditions.push_back({.key = std::to_string(i)});
    }
    ask(puts);
    ask(conditions);
  }
  for (const size_t bytes : {kEtcdRequestBytesMax - 1'024, kEtcdRequestBytesMax}) {
    ask({.then = {{.kind = Operation::kPut,
                   .range = {.begin = "k"},
                   .value = std::string(bytes, 'x')}}});
  }
  for (const Duration ttl : {Duration(1s), Duration(2s), Duration(2500ms)})
    EXPECT_EQ(test_client.Grant(ttl)->ttl, twin.Grant(ttl, {}).ttl);
}

TEST_F(EtcdTwinTest, WhatIsForgottenIsTheSame) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(test_client.Put("k", std::to_string(i)));
  cluster.Control({"compaction", "5"});
  const TestWatcher below(test_client, {.begin = "k"}, 4);
  EXPECT_TRUE(EventuallyTrue([&] { return below.end().has_value(); }));
  EXPECT_EQ(below.end()->code, Code::kNotFound);
  const TestWatcher at(test_client, {.begin = "k"}, 5);
  EXPECT_TRUE(at.HasReceived({"k=3", "k=4", "k=5"}));  // as in sim/etcd.cc
}

}  // namespace
}  // namespace muster::test
