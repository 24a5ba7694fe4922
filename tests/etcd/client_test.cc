// The client with a real etcd: every call, and refusals.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "etcd/test_client.h"

namespace muster::test {
namespace {

using Condition = EtcdCondition::Kind;
using Operation = EtcdOperation::Kind;
using EtcdClientTest = EtcdTest;

TEST_F(EtcdClientTest, WhatIsPutIsRead) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const auto put = test_client.Put("a", std::string("\0\xff value", 8));
  ASSERT_TRUE(put) << put.error().message;
  EXPECT_TRUE(put->held);
  const auto read = test_client.Read({.begin = "a"});
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->results.at(0).pairs.size(), 1u);
  const EtcdPair& pair = read->results[0].pairs[0];
  EXPECT_EQ(pair, (EtcdPair{.key = "a",
                            .value = std::string("\0\xff value", 8),
                            .created = put->revision,
                            .changed = put->revision}));
  EXPECT_EQ(test_client.etcd().Describe(), "etcd at " + cluster.endpoint(0).ToString());
}

TEST_F(EtcdClientTest, ATransactionDoesAllOfOneSide) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const EtcdTransaction create{
      .conditions = {{.kind = Condition::kCreatedAt, .key = "k"}},
      .then = {{.kind = Operation::kPut, .range = {.begin = "k"}, .value = "1"},
               {.kind = Operation::kPut, .range = {.begin = "l"}, .value = "2"}},
      .otherwise = {{.kind = Operation::kGet, .range = EtcdPrefix("k")}}};
  const auto first = test_client.Commit(create);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->held);
  EXPECT_EQ(first->results.size(), 2u);
  const auto second = test_client.Commit(create);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_FALSE(second->held);
  ASSERT_EQ(second->results.size(), 1u);
  EXPECT_EQ(second->results[0].pairs.at(0).value, "1");
  EXPECT_EQ(second->revision, first->revision);
}

TEST_F(EtcdClientTest, ConditionsLookAtValuesAndRevisions) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const int64_t revision = test_client.Put("k", "v")->revision;
  const auto holds = [&](EtcdCondition condition) {
    return test_client.Commit({.conditions = {std::move(condition)}})->held;
  };
  EXPECT_TRUE(holds({.kind = Condition::kValueIs, .key = "k", .value = "v"}));
  EXPECT_FALSE(holds({.kind = Condition::kValueIs, .key = "k", .value = "w"}));
  EXPECT_FALSE(holds({.kind = Condition::kValueIs, .key = "absent", .value = ""}));
  EXPECT_TRUE(holds({.kind = Condition::kChangedAt, .key = "k", .revision = revision}));
  EXPECT_TRUE(holds({.kind = Condition::kChangedAt, .key = "absent", .revision = 0}));
  EXPECT_FALSE(holds({.kind = Condition::kCreatedAt, .key = "k", .revision = 0}));
}

TEST_F(EtcdClientTest, RangesAreReadInPartsAndDeleted) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  for (const char* key : {"p/1", "p/2", "p/3", "q"}) ASSERT_TRUE(test_client.Put(key, "x"));
  EtcdRange range = EtcdPrefix("p/");
  range.limit = 2;
  range.keys_only = true;
  const auto read = test_client.Read(range);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->results.at(0).count, 3);
  ASSERT_EQ(read->results[0].pairs.size(), 2u);
  EXPECT_EQ(read->results[0].pairs[1].key, "p/2");
  EXPECT_EQ(read->results[0].pairs[1].value, "");
  const auto deleted =
      test_client.Commit({.then = {{.kind = Operation::kDelete, .range = EtcdPrefix("p/")}}});
  ASSERT_TRUE(deleted) << deleted.error().message;
  EXPECT_EQ(deleted->results.at(0).count, 3);
  EXPECT_EQ(test_client.Value("p/1"), "(none)");
  EXPECT_EQ(test_client.Value("q"), "x");
}

TEST_F(EtcdClientTest, KeysGoWithTheirLease) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const auto lease = test_client.Grant(30s);
  ASSERT_TRUE(lease) << lease.error().message;
  EXPECT_EQ(lease->ttl, 30s);
  ASSERT_TRUE(test_client.Put("k", "v", lease->id));
  EXPECT_EQ(test_client.Read({.begin = "k"})->results[0].pairs[0].lease, lease->id);
  const auto kept = test_client.KeepAlive(lease->id);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(*kept, 30s);
  EXPECT_TRUE(test_client.Revoke(lease->id));
  EXPECT_EQ(test_client.Value("k"), "(none)");
}

TEST_F(EtcdClientTest, ALeaseWithoutKeepAliveExpires) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const auto lease = test_client.Grant(1s);
  ASSERT_TRUE(lease) << lease.error().message;
  ASSERT_TRUE(test_client.Put("k", "v", lease->id));
  EXPECT_TRUE(EventuallyTrue([&] { return test_client.Value("k") == "(none)"; }));
  const auto kept = test_client.KeepAlive(lease->id);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code, Code::kNotFound);
}

TEST_F(EtcdClientTest, ALeaseThatIsNotThereIsNotFound) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  for (const auto& error : {test_client.KeepAlive(4711).error(), test_client.Revoke(4711).error(),
                            test_client.Put("k", "v", 4711).error()}) {
    EXPECT_EQ(error.code, Code::kNotFound) << error.message;
    EXPECT_NE(error.message.find(cluster.endpoint(0).ToString()), std::string::npos)
        << error.message;
  }
}

TEST_F(EtcdClientTest, WhatIsTooLargeIsRefused) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const auto large = test_client.Put("k", std::string(3 << 20, 'x'));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kInvalid) << large.error().message;
  EtcdTransaction many;
  for (int i = 0; i < 200; ++i)
    many.then.push_back({.kind = Operation::kPut, .range = {.begin = std::to_string(i)}});
  const auto refused = test_client.Commit(many);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid) << refused.error().message;
  EXPECT_NE(refused.error().message.find("too many operations"), std::string::npos)
      << refused.error().message;
}

TEST_F(EtcdClientTest, LargeAnswersArrive) {
  const EtcdCluster cluster;
  TestClient test_client(cluster.access());
  const std::string value(1 << 20, 'x');
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(test_client.Put("big/" + std::to_string(i), value));
  const auto read = test_client.Read(EtcdPrefix("big/"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->results.at(0).pairs.size(), 8u);
}

TEST_F(EtcdClientTest, AnAbsentServerIsUnavailableWithinTheTimeout) {
  const HostAndPort no_server{"127.0.0.1", QuietPort()};
  TestClient test_client({.endpoints = {no_server, {"127.0.0.1", QuietPort()}}});
  const Stopwatch watch;
  const Error put = test_client.Put("k", "v", 0, 500ms).error();
  EXPECT_EQ(put.code, Code::kUnavailable) << put.message;
  EXPECT_NE(put.message.find("127.0.0.1:" + std::to_string(no_server.port)), std::string::npos)
      << put.message;
  EXPECT_NE(put.message.find("refused"), std::string::npos) << put.message;
  const Error kept = test_client.KeepAlive(1, 500ms).error();
  EXPECT_EQ(kept.code, Code::kUnavailable) << kept.message;
  EXPECT_LT(watch.Elapsed(), seconds(15));
}

TEST_F(EtcdClientTest, DeadEndpointsAreSteppedOver) {
  const EtcdCluster cluster;
  TestClient test_client(
      {.endpoints = {
           {"127.0.0.1", QuietPort()}, cluster.endpoints()[0], {"127.0.0.1", QuietPort()}}});
  for (int i = 0; i < 5; ++i) {
    const auto put = test_client.Put("k" + std::to_string(i), "v");
    ASSERT_TRUE(put) << put.error().message;
  }
}

TEST_F(EtcdClientTest, WhatIsUnderWayAtTheEndIsNotReported) {
  const EtcdCluster cluster;
  auto called = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < 20; ++i) {
    TestClient test_client(cluster.access());
    test_client.thread().RunAndWait([&] {
      const auto count = [called](const auto&) { *called += 1; };
      test_client.etcd().Commit({.then = {{.kind = Operation::kPut, .range = {.begin = "k"}}}}, 5s,
                                count);
      test_client.etcd().Grant(5s, 5s, count);
      test_client.etcd().KeepAlive(1, 5s, count);
    });
    test_client.Destroy();
    const int before = *called;
    test_client.thread().RunAndWait([] {});
    EXPECT_EQ(*called, before);
  }
}

}  // namespace
}  // namespace muster::test
