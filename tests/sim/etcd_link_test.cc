// Nodes that meet in a simulated etcd: which one leads, what each receives, and what outlives the
// leader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "etcd/records.h"
#include "sim/etcd_link_fixture.h"

namespace muster::sim {
namespace {

using Kind = Push::Kind;
using ::testing::HasSubstr;

TEST_F(EtcdLinkTest, NodesMeet) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
  for (LinkNode* node : Others(nullptr)) {
    const Push* place = node->Last(Kind::kComplete);
    ASSERT_NE(place, nullptr);
    EXPECT_EQ(place->world_size, 3);
    EXPECT_EQ(place->addr, "10.1.0.100");
    EXPECT_EQ(place->port, 1000);
    EXPECT_NE(place->token, 0u);
  }
  ASSERT_NE(Leader(), nullptr);
  EXPECT_THAT(ValueOf(keys.Leader()), HasSubstr(R"("node": "10.1.0.1)"));
  EXPECT_THAT(ValueOf(keys.Run()), HasSubstr(R"("world_size": 3)"));
}

TEST_F(EtcdLinkTest, TheLeaderDiesWhileTheRoundForms) {
  for (int i = 0; i < 2; ++i) Joining();
  Run(1s);
  LinkNode* leader = Leader();
  ASSERT_NE(leader, nullptr);
  leader->Kill();
  for (int i = 0; i < 2; ++i) Joining();
  Run(10s);
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
  EXPECT_NE(Leader(), nullptr);
}

TEST_F(EtcdLinkTest, TheLeaderDiesWhileTheRoundRuns) {
  for (int i = 0; i < 4; ++i) Joining();
  Run(1s);
  ASSERT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2, 3}));
  LinkNode* leader = Leader();
  leader->Kill();
  Run(5s);
  ASSERT_NE(Leader(), nullptr);
  for (LinkNode* node : Others(leader)) {
    ASSERT_EQ(node->Count(Kind::kLost), 1u);
    EXPECT_THAT(node->Last(Kind::kLost)->who, HasSubstr("10.1.0."));
    EXPECT_FALSE(node->place_lost);
    node->link->Join(60s);
  }
  Run(4s);
  EXPECT_EQ(Ranks(1), (std::multiset<int64_t>{0, 1, 2}));
}

TEST_F(EtcdLinkTest, ANewLeaderDoesNotRepeatNotices) {
  for (int i = 0; i < 4; ++i) Joining();
  Run(1s);
  LinkNode* leader = Leader();
  LinkNode* lost = Others(leader).front();
  LinkNode* left = Others(leader).back();
  left->link->Leave();
  lost->Kill();
  Run(5s);
  EXPECT_EQ(left->Count(Kind::kLeft), 1u);
  left->Go();
  LinkNode* survivor = Others(leader)[0] == left ? Others(leader)[1] : Others(leader)[0];
  Run(1s);
  EXPECT_EQ(survivor->Count(Kind::kLost), 1u);
  leader->Go();  // it was not killed, but the round has lost it
  Run(5s);
  EXPECT_TRUE(survivor->link->leads());
  ASSERT_EQ(survivor->Count(Kind::kLost), 2u);
  EXPECT_THAT(survivor->Last(Kind::kLost)->why, HasSubstr("lease"));
  EXPECT_FALSE(survivor->place_lost);
}

TEST_F(EtcdLinkTest, ANewLeaderReportsAllWaitingNodesAndNotOnlyTheFirst) {
  settings.max_nodes = 8;
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  LinkNode* leader = Leader();
  LinkNode* member = Others(leader).front();
  for (int i = 0; i < 3; ++i) Joining();
  Run(1s);
  ASSERT_NE(member->Last(Kind::kNodesWaiting), nullptr);
  ASSERT_EQ(member->Last(Kind::kNodesWaiting)->count, 3);
  member->heard.clear();
  leader->Kill();
  Run(10s);
  ASSERT_EQ(member->Count(Kind::kLost), 1u) << "another node leads";
  for (const Push& push : member->heard) {
    if (push.kind == Kind::kNodesWaiting) {
      EXPECT_EQ(push.count, 3);
    }
  }
}

TEST_F(EtcdLinkTest, ANewLeaderReportsThatNoNodeWaitsAnyMore) {
  settings.max_nodes = 8;
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  LinkNode* leader = Leader();
  LinkNode* member = Others(leader).front();
  LinkNode& waiter = Joining();
  Run(1s);
  ASSERT_NE(member->Last(Kind::kNodesWaiting), nullptr);
  ASSERT_EQ(member->Last(Kind::kNodesWaiting)->count, 1);
  leader->Kill();
  waiter.Go();
  Run(10s);
  ASSERT_EQ(member->Count(Kind::kLost), 1u) << "another node leads";
  EXPECT_EQ(member->Last(Kind::kNodesWaiting)->count, 0);
}

TEST_F(EtcdLinkTest, ANodeThatClosedTheLastRunDoesNotCloseTheNextOne) {
  settings.min_nodes = settings.max_nodes = 2;
  LinkNode& closer = Joining();
  LinkNode& other = Joining();
  Run(3s);
  closer.link->Close("done");
  Run(1s);
  ASSERT_EQ(closer.Count(Kind::kClosed), 1u);
  closer.process.Pause();
  other.Go();
  Run(10s);  // no node is left that knows of the run
  LinkNode& next = Joining();
  Joining();
  Run(3s);
  ASSERT_EQ(next.Count(Kind::kComplete), 1u);
  closer.process.Resume();
  Run(10s);
  EXPECT_GE(closer.Count(Kind::kOpened), 2u);
  EXPECT_EQ(next.Count(Kind::kClosed), 0u);
}

TEST_F(EtcdLinkTest, ANodeThatIsPausedForTooLongLearnsThatItIsOut) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  LinkNode* paused = Others(Leader()).front();
  paused->process.Pause();
  Run(10s);
  EXPECT_FALSE(paused->place_lost);
  paused->process.Resume();
  Run(1ms);
  ASSERT_TRUE(paused->place_lost);
  EXPECT_THAT(*paused->place_lost, HasSubstr("lease"));
  Run(3s);
  EXPECT_EQ(paused->Count(Kind::kOpened), 2u);
  EXPECT_EQ(Others(paused).front()->Count(Kind::kLost), 1u);
}

TEST_F(EtcdLinkTest, APausedLeaderWritesNothingWhenItWakes) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  LinkNode* leader = Leader();
  leader->process.Pause();
  Run(10s);
  LinkNode* next = nullptr;
  for (LinkNode* node : Others(leader)) {
    if (node->link->leads()) next = node;
  }
  ASSERT_NE(next, nullptr);
  const std::string by_next = ValueOf(keys.Leader());
  leader->process.Resume();
  Run(5s);
  EXPECT_FALSE(leader->link->leads());
  EXPECT_TRUE(leader->place_lost);
  EXPECT_EQ(ValueOf(keys.Leader()), by_next);
}

TEST_F(EtcdLinkTest, ClosingAppliesToTheNodesThatWereThere) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  nodes[100]->link->Close("done");
  Run(1s);
  for (LinkNode* node : Others(nullptr)) {
    ASSERT_EQ(node->Count(Kind::kClosed), 1u);
    EXPECT_EQ(node->Last(Kind::kClosed)->who, "10.1.0.100_100_0: done");
  }
  // A node that comes while they are there is notified, too, also by the next leader.
  LinkNode& late = Joining();
  Run(1s);
  EXPECT_EQ(late.Count(Kind::kClosed), 1u);
  Leader()->Kill();
  Run(5s);
  LinkNode& later = Joining();
  Run(1s);
  EXPECT_EQ(later.Count(Kind::kClosed), 1u);
  // When all have left, one after the other, a run of the same name begins again.
  for (LinkNode* node : Others(nullptr)) node->Go();
  Run(1s);
  Bury();
  for (int i = 0; i < 3; ++i) Joining();
  Run(5s);
  EXPECT_EQ(Ranks(1), (std::multiset<int64_t>{0, 1, 2}));
}

TEST_F(EtcdLinkTest, ANodeThatComesBackToAClosedRunIsNotified) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  LinkNode* paused = Others(Leader()).front();
  paused->process.Pause();
  Run(10s);
  Leader()->link->Close("done");
  Run(1s);
  paused->process.Resume();
  Run(3s);
  EXPECT_EQ(paused->Count(Kind::kClosed), 1u);
}

TEST_F(EtcdLinkTest, ANodeThatHadLeftIsNotBroughtBackByTheNextLeader) {
  settings = {.min_nodes = 2, .max_nodes = 3, .last_call = 500ms, .grace = 0s};
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  LinkNode* leader = Leader();
  LinkNode* left = Others(leader).front();
  LinkNode* stays = Others(leader).back();
  left->link->Leave();
  Run(1s);
  ASSERT_EQ(left->Count(Kind::kLeft), 1u);
  stays->link->Join(60s);
  Run(1s);
  leader->Kill();
  Joining();
  Run(10s);
  ASSERT_EQ(stays->Count(Kind::kComplete), 2u);
  EXPECT_EQ(stays->Last(Kind::kComplete)->round, 1);
  EXPECT_EQ(stays->Last(Kind::kComplete)->world_size, 2);
  EXPECT_EQ(left->Count(Kind::kComplete), 1u);
}

TEST_F(EtcdLinkTest, AfterALossTheNextLeaderWaitsForTheReformTimeoutOnly) {
  settings = {.min_nodes = 2, .max_nodes = 3, .last_call = 300s, .grace = 0s};
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  ASSERT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
  LinkNode* leader = Leader();
  const std::vector<LinkNode*> survivors = Others(leader);
  leader->Kill();
  Run(10s);
  for (LinkNode* node : survivors) {
    ASSERT_EQ(node->Count(Kind::kLost), 1u);
    node->link->Join(60s);
  }
  Run(400ms);
  EXPECT_EQ(Ranks(1), (std::multiset<int64_t>{})) << "it may come back";
  Run(1s);
  EXPECT_EQ(Ranks(1), (std::multiset<int64_t>{0, 1}));
}

TEST_F(EtcdLinkTest, AJoinThatFoundTheRunClosedIsOver) {
  settings = {.min_nodes = 2, .max_nodes = 2, .last_call = 500ms, .grace = 0s};
  for (int i = 0; i < 2; ++i) Joining();
  Run(2s);
  nodes[100]->link->Close("done");
  Run(1s);
  LinkNode& late = Joining();
  Run(1s);
  ASSERT_EQ(late.Count(Kind::kClosed), 1u);
  for (LinkNode* node : Others(&late)) node->Go();
  Run(1s);
  ASSERT_TRUE(late.link->leads());
  LinkNode& one = Joining();
  LinkNode& two = Joining();
  Run(3s);
  EXPECT_EQ(one.Count(Kind::kComplete), 1u);
  EXPECT_EQ(two.Count(Kind::kComplete), 1u);
  EXPECT_EQ(late.Count(Kind::kComplete), 0u);
}

TEST_F(EtcdLinkTest, ALeaderThatOutlivesAClosedRunLeadsTheNext) {
  settings = {.min_nodes = 2, .max_nodes = 2, .last_call = 500ms, .grace = 0s};
  for (int i = 0; i < 2; ++i) Joining();
  Run(2s);
  LinkNode* leader = Leader();
  LinkNode* other = Others(leader).front();
  leader->link->Close("done");
  Run(1s);
  LinkNode& late = Joining();
  Run(1s);
  other->process.Pause();  // so that the late one leads next
  leader->Go();
  Run(1s);
  other->process.Resume();
  Run(500ms);
  ASSERT_TRUE(late.link->leads());
  LinkNode& early = Joining();
  Run(1s);
  EXPECT_EQ(early.Count(Kind::kClosed), 1u);  // a node that knows that it is closed is still there
  early.Go();
  other->Go();
  Run(1s);
  Joining();
  Joining();
  Run(3s);
  EXPECT_EQ(Ranks(1), (std::multiset<int64_t>{0, 1}));
}

TEST_F(EtcdLinkTest, ALeaderWithoutALeaseIsNamed) {
  ASSERT_TRUE(Commit({.then = {Put(keys.Leader(), "somebody")}}));
  LinkNode& node = Joining();
  Run(2s);
  ASSERT_TRUE(node.failure);
  EXPECT_EQ(node.failure->code, Code::kProtocol);
  EXPECT_THAT(node.failure->message, HasSubstr(keys.Leader()));
}

TEST_F(EtcdLinkTest, APlanThatCannotBeIsNamed) {
  const wire::EtcdRun run{
      .settings = settings, .round = 3, .world_size = 2, .plan = "3-1", .parts = 1};
  const auto plan = wire::WritePlan({{.node = {"a", 1, 0}, .session = 1, .rank = 0},
                                     {.node = {"a", 1, 0}, .session = 1, .rank = 1}});
  ASSERT_TRUE(Commit(
      {.then = {Put(keys.Run(), wire::Write(run)), Put(keys.Plan("3-1", 0), plan.front())}}));
  LinkNode& node = Joining();
  Run(2s);
  ASSERT_TRUE(node.failure);
  EXPECT_EQ(node.failure->code, Code::kProtocol);
  EXPECT_THAT(node.failure->message, HasSubstr("plans/3-1"));
}

TEST_F(EtcdLinkTest, ANodeThatFindsItsOwnOldRecordContinues) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  cluster().Kill(Network::Ending::kSilent);
  Run(5s);
  for (LinkNode* node : Others(nullptr)) ASSERT_TRUE(node->place_lost);
  StartCluster();  // and restarts all leases with their full time: 3 s
  Run(2500ms);
  for (LinkNode* node : Others(nullptr)) {
    EXPECT_EQ(node->Count(Kind::kOpened), 2u);
    EXPECT_EQ(node->Count(Kind::kRefused), 0u);
  }
}

TEST_F(EtcdLinkTest, ACrashedRunIsOutlived) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  for (LinkNode* node : Others(nullptr)) node->Kill();
  Bury();
  settings.max_nodes = 3;  // not the settings of the earlier run
  for (int i = 0; i < 3; ++i) Joining();
  Run(15s);
  EXPECT_EQ(Ranks(1), (std::multiset<int64_t>{0, 1, 2}));
}

TEST_F(EtcdLinkTest, ANodeWithOtherSettingsIsRefusedAtOnce) {
  Joining();
  Run(1s);
  settings.max_nodes = 5;
  LinkNode& other = Joining();
  Run(1s);
  ASSERT_EQ(other.Count(Kind::kRefused), 1u);
  EXPECT_THAT(other.Last(Kind::kRefused)->why, HasSubstr("max_nodes 5 against 4"));
}

TEST_F(EtcdLinkTest, ANodeThatWaitsForDeadNodesLeasesKnowsWhy) {
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  LinkNode* leader = Leader();
  ASSERT_NE(leader, nullptr);
  // The leader's lease ends first, and no node is left to follow it.
  leader->Kill();
  Run(1500ms);
  for (LinkNode* node : Others(leader)) node->Kill();
  Bury();
  settings.max_nodes = 3;
  LinkNode& late = Joining();
  // Until it leads, and refuses its own settings.
  const auto refused = [&] {
    return !late.troubles.empty() &&
           late.troubles.back().find("max_nodes 3 against 4") != std::string::npos;
  };
  for (int i = 0; i < 100 && !refused(); ++i) Run(100ms);
  ASSERT_TRUE(refused());
  const size_t opened = late.Count(Kind::kOpened);
  Run(300ms);
  EXPECT_EQ(late.Count(Kind::kOpened), opened) << "it is not through yet";
  EXPECT_EQ(late.Count(Kind::kRefused), 0u) << "the dead go, with their leases";
  for (int i = 0; i < 2; ++i) Joining();
  Run(10s);
  EXPECT_EQ(Ranks(1), (std::multiset<int64_t>{0, 1, 2}));
  EXPECT_EQ(late.Count(Kind::kRefused), 0u);
}

TEST_F(EtcdLinkTest, WhatOthersWroteIsNamed) {
  ASSERT_TRUE(Commit({.then = {Put(keys.Run(), "surely not")}}));
  LinkNode& node = Joining();
  Run(2s);
  ASSERT_TRUE(node.failure);
  EXPECT_EQ(node.failure->code, Code::kProtocol);
  EXPECT_THAT(node.failure->message, HasSubstr("/muster/a%20run%2F1/run"));
}

TEST_F(EtcdLinkTest, AMemberThatIsNoneIsPassedOver) {
  ASSERT_TRUE(Commit({.then = {Put(keys.Members() + "x", R"({"addr": 1})")}}));
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
  EXPECT_THAT(Leader()->troubles, testing::Contains(HasSubstr("members/x")));
}

TEST_F(EtcdLinkTest, CompactionCostsNothing) {
  for (int i = 0; i < 2; ++i) Joining();
  Run(1s);
  for (LinkNode* node : Others(nullptr)) network.Cut(node->process.host(), there);
  Run(500ms);
  for (LinkNode* node : Others(nullptr)) network.Heal(node->process.host(), there);
  etcd.Compact(etcd.state().revision());
  Joining();
  Run(10s);
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
}

TEST_F(EtcdLinkTest, ElectionsOfEtcdCostNothing) {
  for (int i = 0; i < 2; ++i) Joining();
  Run(1s);
  etcd.Elect(1500ms);
  Joining();
  Run(6s);
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
  for (LinkNode* node : Others(nullptr)) EXPECT_FALSE(node->place_lost);
}

TEST_F(EtcdLinkTest, ANodeWhoseWatchesFailReadsWithPausesAndStillMeetsTheOthers) {
  size_t failed = 0;
  const auto unwatchable = [&](std::shared_ptr<Etcd> made, Loop& on) {
    return std::make_shared<UnwatchableEtcd>(std::move(made), on, failed);
  };
  Node(unwatchable).link->Join(60s);
  for (int i = 0; i < 2; ++i) Joining();
  Run(20s);
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
  // Pauses of 20 to 120 ms; the second watch of a read may fail before the first ends both.
  EXPECT_GE(failed, 20s / 120ms / 2);
  EXPECT_LE(failed, 2 * (20s / 20ms));
}

TEST_F(EtcdLinkTest, AWaitingNodeCanQueryWhichNodesAreMissing) {
  LinkNode& node = Joining();
  Run(2s);
  node.link->RequestReport(8);
  Run(100ms);
  ASSERT_TRUE(node.report);
  EXPECT_EQ(node.report->phase, RunReport::Phase::kForming);
  EXPECT_EQ(node.report->participants, 1);
  ASSERT_EQ(node.report->members.size(), 1u);
  EXPECT_EQ(node.report->members[0].node.addr, "10.1.0.100");
}

TEST_F(EtcdLinkTest, AnUnansweredJoinTimesOut) {
  LinkNode& node = Node();
  node.link->Join(2s);
  Run(4s);
  ASSERT_EQ(node.Count(Kind::kTimedOut), 1u);
  EXPECT_THAT(node.Last(Kind::kTimedOut)->why, HasSubstr("10.1.0.100"));
  // The next leader knows that, too.
  LinkNode& second = Joining();
  Run(1s);
  node.Kill();
  Run(5s);
  EXPECT_TRUE(second.link->leads());
  for (int i = 0; i < 2; ++i) Joining();
  Run(3s);
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace muster::sim
