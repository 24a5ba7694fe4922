// Faults of a simulated etcd, and what holds in spite of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "sim/etcd.h"
#include "sim/etcd_fixture.h"

namespace muster::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(SimEtcdTest, AClientThatCannotReachTheClusterKnowsThatNothingHappened) {
  network.Cut(here, there);
  const auto put = Commit({.then = {Put("a", "1")}}, 1s);
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kUnavailable);
  EXPECT_THAT(put.error().message, HasSubstr("etcd at 10.0.0.1:2379"));
  network.HealAll();
  Run(10s);
  EXPECT_EQ(etcd.state().Find("a"), nullptr);
}

TEST_F(SimEtcdTest, AnAnswerThatIsLostLeavesItOpen) {
  ASSERT_TRUE(Commit({.then = {Put("a", "1")}}));
  network.Cut(there, here);
  const auto put = Commit({.then = {Put("a", "2")}}, 1s);
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kTimeout);
  EXPECT_EQ(etcd.state().Find("a")->value, "2");
}

TEST_F(SimEtcdTest, AnAbandonedCallMayHappenLater) {
  ASSERT_TRUE(Commit({.then = {Put("a", "1")}}));
  network.Cut(here, there);
  const auto put = Commit({.then = {Put("a", "2")}}, 500ms);
  EXPECT_EQ(put.error().code, Code::kTimeout);
  EXPECT_EQ(etcd.state().Find("a")->value, "1");
  network.HealAll();
  Run(1s);
  EXPECT_EQ(etcd.state().Find("a")->value, "2");
}

TEST_F(SimEtcdTest, AWatchContinuesWhereItWasWhenTheClusterIsReachedAgain) {
  SimProcess other(scheduler, network, network.AddHost("10.1.0.1"), 3, {}, 3);
  SimLoop its_loop(other);
  const auto writer = Connect(other, its_loop);
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  writer->Commit({.then = {Put("k1", "")}}, kPatience, [](auto) {});
  Run(1s);
  network.Cut(there, here);
  network.Cut(here, there);
  for (const char* key : {"k2", "k3"}) {
    writer->Commit({.then = {Put(key, "")}}, kPatience, [](auto) {});
    Run(5s);
  }
  EXPECT_THAT(heard.keys, ElementsAre("k1"));
  EXPECT_THAT(heard.troubles, testing::Not(IsEmpty()));
  network.HealAll();
  Run(10s);
  EXPECT_THAT(heard.keys, ElementsAre("k1", "k2", "k3"));
  other.Kill(Network::Ending::kNotified);
}

TEST_F(SimEtcdTest, AWatchThatMissedWhatWasForgottenEnds) {
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  ASSERT_TRUE(Commit({.then = {Put("k", "1")}}));
  Run(1s);
  network.Cut(there, here);
  for (int i = 0; i < 3; ++i) ASSERT_FALSE(Commit({.then = {Put("k", "2")}}, 100ms));
  Run(10s);
  etcd.Compact(etcd.state().revision());
  network.HealAll();
  Run(10s);
  ASSERT_TRUE(heard.end);
  EXPECT_EQ(heard.end->code, Code::kNotFound);
}

TEST_F(SimEtcdTest, ARestartedClusterHasItsData) {
  const auto lease = Grant(2s);
  ASSERT_TRUE(Commit({.then = {Put("a", "1"), Put("b", "2", lease->id)}}));
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("c"), 1, heard);
  Run(1s);
  cluster().Kill(Network::Ending::kNotified);
  const auto put = Commit({.then = {Put("c", "3")}}, 1s);
  EXPECT_FALSE(put);
  Run(1h);
  StartCluster();
  Run(2s);
  EXPECT_NE(etcd.state().Find("b"), nullptr);  // its lease started again
  Run(2s);
  EXPECT_EQ(etcd.state().Find("b"), nullptr);
  ASSERT_TRUE(Commit({.then = {Put("c", "4")}}));
  Run(1s);
  EXPECT_THAT(heard.keys, ElementsAre("c"));
  EXPECT_EQ(etcd.state().Find("a")->value, "1");
}

TEST_F(SimEtcdTest, ADeadClustersCallsFail) {
  ASSERT_TRUE(Commit({.then = {Put("a", "1")}}));
  std::optional<Code> code;
  client->Commit({.then = {Put("a", "2")}}, kPatience, [&](auto put) { code = put.error().code; });
  cluster().Kill(Network::Ending::kNotified);
  Run(1s);
  EXPECT_EQ(code, Code::kTimeout);
  EXPECT_EQ(Commit({.then = {Put("a", "2")}}).error().code, Code::kUnavailable);
}

TEST_F(SimEtcdTest, LeasesStartAgainWithANewLeader) {
  const auto lease = Grant(2s);
  ASSERT_TRUE(Commit({.then = {Put("a", "1", lease->id)}}));
  Run(1500ms);
  etcd.Elect(2s);
  Run(2s);
  EXPECT_NE(etcd.state().Find("a"), nullptr);  // no lease ends meanwhile
  Run(2900ms);
  EXPECT_NE(etcd.state().Find("a"), nullptr);
  Run(700ms);
  EXPECT_EQ(etcd.state().Find("a"), nullptr);
}

TEST_F(SimEtcdTest, InAnElectionCallsWaitOrFailOneWayOrTheOther) {
  std::map<std::string, int> ends;
  int kept = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string key = std::to_string(i);
    etcd.Elect(1s);
    const WorldTime began = scheduler.now();
    const auto put = Commit({.then = {Put(key, "")}});
    Run(3s);
    const bool is_there = etcd.state().Find(key) != nullptr;
    if (put) {
      EXPECT_TRUE(is_there);
      EXPECT_GE(scheduler.now() - began, 1s);
      ++kept;
    } else if (put.error().code == Code::kUnavailable) {
      EXPECT_FALSE(is_there);
      ++ends["refused"];
    } else {
      EXPECT_EQ(put.error().code, Code::kTimeout);
      ++ends[is_there ? "unknown, made" : "unknown, not made"];
    }
  }
  EXPECT_GT(kept, 5);
  EXPECT_GT(ends["refused"], 5);
  EXPECT_GT(ends["unknown, made"], 5);
}

class TroubledEtcdTest : public SimEtcdTest {
 protected:
  TroubledEtcdTest() : SimEtcdTest({.slow = true, .lost = true, .watch_delay = true}, 7) {}
};

TEST_F(TroubledEtcdTest, CallsFailBeforeOrAfterTheyWereMade) {
  std::map<std::string, int> ends;
  Duration slowest{};
  for (int i = 0; i < 300; ++i) {
    const std::string key = std::to_string(i);
    const WorldTime began = scheduler.now();
    const auto put = Commit({.then = {Put(key, "")}});
    slowest = std::max(slowest, scheduler.now() - began);
    const bool is_there = etcd.state().Find(key) != nullptr;
    EXPECT_TRUE(put || is_there == (put.error().code == Code::kTimeout));
    ++ends[put ? "made" : is_there ? "unknown" : "refused"];
  }
  EXPECT_GT(ends["made"], 200);
  EXPECT_GT(ends["unknown"], 3);
  EXPECT_GT(ends["refused"], 3);
  EXPECT_GT(slowest, 500ms);
}

TEST_F(TroubledEtcdTest, WatchesAreLateEachByItselfAndLoseNothing) {
  Heard one;
  Heard two;
  const auto first = client->Watch(EtcdPrefix("k"), 1, one);
  const auto second = client->Watch(EtcdPrefix("k"), 1, two);
  bool differed = false;
  for (int i = 0; i < 100; ++i) {
    static_cast<void>(Commit({.then = {Put("k", std::to_string(i))}}));
    differed = differed || one.revisions.size() != two.revisions.size();
    if (i % 10 == 0) etcd.Elect(100ms);
  }
  Run(10s);
  EXPECT_TRUE(differed);
  EXPECT_EQ(one.revisions, two.revisions);
  EXPECT_EQ(static_cast<int64_t>(one.revisions.size()), etcd.state().revision() - 1);
  EXPECT_THAT(one.troubles, testing::Not(IsEmpty()));
}

TEST_F(TroubledEtcdTest, ACompactionEndsAWatchThatIsBehind) {
  int ended = 0;
  for (int i = 0; i < 40; ++i) {
    Heard heard;
    const auto watch = client->Watch(EtcdPrefix("k"), etcd.state().revision() + 1, heard);
    Run(100ms);
    for (int j = 0; j < 3; ++j) static_cast<void>(Commit({.then = {Put("k", "")}}));
    etcd.Compact(etcd.state().revision());
    Run(5s);
    if (heard.end) {
      ++ended;
      EXPECT_EQ(heard.end->code, Code::kNotFound);
    } else {
      EXPECT_EQ(heard.revisions.back(), etcd.state().revision());
    }
  }
  EXPECT_GT(ended, 0);
  EXPECT_LT(ended, 40);
}

TEST_F(TroubledEtcdTest, AfterHealingNothingFails) {
  etcd.Elect(1h);
  Run(1s);
  etcd.Heal();
  Run(2s);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Commit({.then = {Put("k", "")}}, 100ms));
}

// ----------------------------------------------------------------------------------------------
// processes

TEST_F(SimEtcdTest, APausedProcessReceivesEverythingLater) {
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  std::optional<bool> made;
  client->Commit({.then = {Put("k", "1")}}, 1min, [&](auto put) { made = put.has_value(); });
  Run(250us);
  process.Pause();
  Run(10s);
  EXPECT_FALSE(made);
  EXPECT_THAT(heard.keys, IsEmpty());
  process.Resume();
  Run(2s);
  EXPECT_TRUE(made);
  EXPECT_THAT(heard.keys, ElementsAre("k"));
}

TEST_F(SimEtcdTest, ADeadProcessReceivesNothingAndItsLeasesEnd) {
  const auto lease = Grant(2s);
  ASSERT_TRUE(Commit({.then = {Put("k", "1", lease->id)}}));
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  bool reported = false;
  client->KeepAlive(lease->id, kPatience, [&](auto) { reported = true; });
  process.Kill(Network::Ending::kNotified);
  client->Commit({.then = {Put("k", "2")}}, kPatience, [&](auto) { reported = true; });
  Run(10s);
  EXPECT_FALSE(reported);
  EXPECT_THAT(heard.keys, IsEmpty());
  EXPECT_EQ(etcd.state().Find("k"), nullptr);
}

uint64_t HashOf(uint64_t seed) {
  Scheduler scheduler;
  Trace trace;
  Network network(scheduler, {.fragment = true}, seed, trace);
  SimProcess cluster(scheduler, network, network.AddHost("10.0.0.1"), 1, {}, seed);
  SimProcess process(scheduler, network, network.AddHost("10.1.0.0"), 2, {}, seed);
  SimEtcd etcd(network, trace, {.slow = true, .lost = true, .watch_delay = true}, seed);
  etcd.Serve(cluster);
  SimLoop loop(process);
  const auto client = std::move(*etcd.ConnectorOf(process)(loop));
  Heard heard;
  const auto watch = client->Watch(EtcdPrefix("k"), 1, heard);
  for (int i = 0; i < 50; ++i) {
    client->Commit({.then = {Put("k", std::to_string(i))}}, kPatience, [](auto) {});
    if (i % 20 == 10) etcd.Elect(300ms);
    scheduler.RunUntil(scheduler.now() + 100ms);
  }
  cluster.Kill(Network::Ending::kSilent);
  process.Kill(Network::Ending::kSilent);
  return trace.hash();
}

TEST(SimEtcdSeedTest, ASeedIsARun) {
  EXPECT_EQ(HashOf(1), HashOf(1));
  EXPECT_EQ(HashOf(2), HashOf(2));
  EXPECT_NE(HashOf(1), HashOf(2));
}

}  // namespace
}  // namespace muster::sim
