// What a simulated etcd promises.
#include "sim/etcd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/etcd_fixture.h"

namespace muster::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(SimEtcdTest, ATransactionIsAppliedInOneRevision) {
  const auto put = Commit({.then = {Put("a", "1"), Put("b", "2")}});
  ASSERT_TRUE(put) << put.error().message;
  EXPECT_TRUE(put->held);
  EXPECT_EQ(put->revision, 2);
  const auto got = Commit({.then = {Get({"a", "c"})}});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->revision, 2);
  EXPECT_THAT(got->results.at(0).pairs,
              ElementsAre(EtcdPair{.key = "a", .value = "1", .created = 2, .changed = 2},
                          EtcdPair{.key = "b", .value = "2", .created = 2, .changed = 2}));
}

TEST_F(SimEtcdTest, ConditionsDecideWhichOperationsAreMade) {
  EXPECT_TRUE(Commit({.conditions = {IsAbsent("a")}, .then = {Put("a", "1")}})->held);
  const auto again = Commit(
      {.conditions = {IsAbsent("a")}, .then = {Put("a", "2")}, .otherwise = {Get({.begin = "a"})}});
  EXPECT_FALSE(again->held);
  EXPECT_EQ(again->results.at(0).pairs.at(0).value, "1");
  using Kind = EtcdCondition::Kind;
  const EtcdCondition value{.kind = Kind::kValueIs, .key = "a", .value = "1"};
  const EtcdCondition changed{.kind = Kind::kChangedAt, .key = "a", .revision = 2};
  EXPECT_TRUE(Commit({.conditions = {value, changed}, .then = {Put("a", "3")}})->held);
  EXPECT_FALSE(Commit({.conditions = {value}})->held);
  EXPECT_FALSE(Commit({.conditions = {changed}})->held);
  const EtcdCondition absent{.kind = Kind::kValueIs, .key = "none"};
  EXPECT_FALSE(Commit({.conditions = {absent}})->held);
}

TEST_F(SimEtcdTest, AReadIsLimitedAndCountsAll) {
  ASSERT_TRUE(Commit({.then = {Put("k1", "x"), Put("k2", "y"), Put("l", "z")}}));
  EtcdRange range = EtcdPrefix("k");
  range.limit = 1;
  range.keys_only = true;
  const auto got = Commit({.then = {Get(range)}});
  EXPECT_EQ(got->results.at(0).count, 2);
  EXPECT_THAT(got->results.at(0).pairs, SizeIs(1));
  EXPECT_EQ(got->results.at(0).pairs.at(0).value, "");
  const auto deleted = Commit({.then = {Delete(EtcdPrefix("k")), Get(EtcdPrefix("k"))}});
  EXPECT_EQ(deleted->results.at(0).count, 2);
  EXPECT_EQ(deleted->results.at(1).count, 0);
  EXPECT_EQ(deleted->revision, 3);
  EXPECT_EQ(Commit({.then = {Delete(EtcdPrefix("k"))}})->revision, 3);  // there was nothing
}

TEST_F(SimEtcdTest, AKeyThatComesAgainIsANewOne) {
  ASSERT_TRUE(Commit({.then = {Put("a", "1")}}));
  ASSERT_TRUE(Commit({.then = {Put("a", "2")}}));
  EXPECT_EQ(etcd.state().Find("a")->created, 2);
  EXPECT_EQ(etcd.state().Find("a")->changed, 3);
  ASSERT_TRUE(Commit({.then = {Delete({.begin = "a"})}}));
  ASSERT_TRUE(Commit({.then = {Put("a", "3")}}));
  EXPECT_EQ(etcd.state().Find("a")->created, 5);
}

TEST_F(SimEtcdTest, WhatIsTooLargeIsRefused) {
  std::vector<EtcdOperation> many;
  for (size_t i = 0; i <= kEtcdOperationsMax; ++i) many.push_back(Put(std::to_string(i), ""));
  const auto refused = Commit({.then = many});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr("etcd at 10.0.0.1:2379"));
  EXPECT_THAT(refused.error().message, HasSubstr("limit 128"));
  many.pop_back();
  EXPECT_TRUE(Commit({.then = many}));
  const auto large = Commit({.then = {Put("a", std::string(kEtcdRequestBytesMax, 'x'))}});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kInvalid);
  const auto twice = Commit({.then = {Put("a", "1"), Put("a", "2")}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::kInvalid);
  EXPECT_EQ(etcd.state().revision(), 2);
}

TEST_F(SimEtcdTest, ALeaseTakesItsKeysAlong) {
  const auto lease = Grant(1s);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->ttl, kEtcdLeaseMin);
  ASSERT_TRUE(Commit({.then = {Put("a", "1", lease->id), Put("b", "2", lease->id)}}));
  Run(1900ms);
  EXPECT_NE(etcd.state().Find("a"), nullptr);
  Run(700ms);  // checked twice a second
  EXPECT_EQ(etcd.state().Find("a"), nullptr);
  EXPECT_EQ(etcd.state().revision(), 3);  // both at once
  const auto kept = KeepAlive(lease->id);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code, Code::kNotFound);
}

TEST_F(SimEtcdTest, ALeaseThatIsKeptAliveLasts) {
  const auto lease = Grant(2500ms);
  EXPECT_EQ(lease->ttl, 3s);
  ASSERT_TRUE(Commit({.then = {Put("a", "1", lease->id)}}));
  for (int i = 0; i < 5; ++i) {
    Run(2s);
    const auto kept = KeepAlive(lease->id);
    ASSERT_TRUE(kept);
    EXPECT_EQ(*kept, 3s);
  }
  EXPECT_NE(etcd.state().Find("a"), nullptr);
  ASSERT_TRUE(Revoke(lease->id));
  EXPECT_EQ(etcd.state().Find("a"), nullptr);
  EXPECT_EQ(Revoke(lease->id).error().code, Code::kNotFound);
}

TEST_F(SimEtcdTest, AnExpiredLeaseIsNotFoundOnceItsKeysAreGone) {
  const auto lease = Grant(2s);
  ASSERT_TRUE(Commit({.then = {Put("a", "1", lease->id)}}));
  Run(2s);
  const auto kept = KeepAlive(lease->id);
  EXPECT_EQ(kept.error().code, Code::kNotFound);
  EXPECT_EQ(etcd.state().Find("a"), nullptr);
}

TEST_F(SimEtcdTest, AnUnknownLeaseFailsTheWholeTransaction) {
  const auto put = Commit({.then = {Put("a", "1"), Put("b", "2", 4711)}});
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kNotFound);
  EXPECT_EQ(etcd.state().Find("a"), nullptr);
}

TEST_F(SimEtcdTest, AKeyThatIsWrittenWithoutItsLeaseOutlivesIt) {
  const auto lease = Grant(2s);
  ASSERT_TRUE(Commit({.then = {Put("a", "1", lease->id)}}));
  ASSERT_TRUE(Commit({.then = {Put("a", "2")}}));
  Run(10s);
  EXPECT_NE(etcd.state().Find("a"), nullptr);
  EXPECT_EQ(etcd.state().leases(), 0u);
}

TEST_F(SimEtcdTest, AThousandLeasesASecondEnd) {
  for (int i = 0; i < 1'200; ++i) client->Grant(2s, kPatience, [](auto) {});
  Run(1s);
  ASSERT_EQ(etcd.state().leases(), 1'200u);
  Run(1600ms);
  EXPECT_EQ(etcd.state().leases(), 700u);
  Run(500ms);
  EXPECT_EQ(etcd.state().leases(), 200u);
  Run(500ms);
  EXPECT_EQ(etcd.state().leases(), 0u);
}

TEST_F(SimEtcdTest, AWatchReportsPastAndLaterChanges) {
  ASSERT_TRUE(Commit({.then = {Put("k/a", "1")}}));
  ASSERT_TRUE(Commit({.then = {Put("k/b", "2"), Put("other", "2")}}));
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k/"), 3, heard);
  Run(1s);
  EXPECT_THAT(heard.keys, ElementsAre("k/b"));
  ASSERT_TRUE(Commit({.then = {Put("k/c", ""), Delete({.begin = "k/a"})}}));
  Run(1s);
  EXPECT_THAT(heard.keys, ElementsAre("k/b", "k/c", "-k/a"));
  EXPECT_THAT(heard.revisions, ElementsAre(3, 4, 4));
  EXPECT_THAT(heard.troubles, IsEmpty());
}

TEST_F(SimEtcdTest, AWatchThatIsDestroyedIsOver) {
  Heard heard;
  auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  Run(1s);
  watch.reset();
  ASSERT_TRUE(Commit({.then = {Put("k", "1")}}));
  Run(1s);
  EXPECT_THAT(heard.keys, IsEmpty());
}

TEST_F(SimEtcdTest, AWatchOfWhatWasForgottenEnds) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Commit({.then = {Put("k", std::to_string(i))}}));
  etcd.Compact(5);
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k"), 4, heard);
  Run(1s);
  ASSERT_TRUE(heard.end);
  EXPECT_EQ(heard.end->code, Code::kNotFound);
  EXPECT_THAT(heard.end->message, HasSubstr("etcd at 10.0.0.1:2379"));
  Heard later;
  const auto next = client->Watch(EtcdPrefix("k"), 5, later);
  Run(1s);
  EXPECT_FALSE(later.end);
  EXPECT_THAT(later.revisions, ElementsAre(5, 6));
}

TEST_F(SimEtcdTest, AWatchThatHasReceivedEverythingSurvivesACompaction) {
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  ASSERT_TRUE(Commit({.then = {Put("k", "1")}}));
  Run(1s);
  ASSERT_TRUE(Commit({.then = {Put("other", "1")}}));
  etcd.Compact(etcd.state().revision());
  ASSERT_TRUE(Commit({.then = {Put("k", "2")}}));
  Run(1s);
  EXPECT_FALSE(heard.end);
  EXPECT_THAT(heard.revisions, ElementsAre(2, 4));
}

TEST_F(SimEtcdTest, ADestroyedClientReportsNothing) {
  bool reported = false;
  Heard heard;
  auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  client->Commit({.then = {Put("k", "1")}}, kPatience, [&](auto) { reported = true; });
  client.reset();
  watch.reset();
  Run(10s);
  EXPECT_FALSE(reported);
  EXPECT_THAT(heard.keys, IsEmpty());
}

}  // namespace
}  // namespace muster::sim
