#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/core/operations.h"
#include "support/story.h"

namespace muster {
namespace {

using testing::Complete;
using testing::kNoon;
using testing::kStart;
using testing::MinMax;
using testing::Named;
using testing::Spare;
using testing::Waiting;
using testing::With;

constexpr WallTime kLater = kNoon + 7s;

RendezvousState After(RendezvousState state, Action action, const RunSettings& rules,
                      const char* self = "a") {
  Apply(action, Named(self), rules, kLater, &state);
  return state;
}

TEST(ApplyTest, Rdzv067KeepAliveSetsTheOwnHeartbeatOnly) {
  RendezvousState expected = With({"a", "b"});
  expected.last_heartbeats[Named("a")] = kLater;
  EXPECT_EQ(After(With({"a", "b"}), Action::kKeepAlive, MinMax(1, 3)), expected);
}

TEST(ApplyTest, Rdzv068JoiningGivesRankZeroAHeartbeatAndLeavesTheWaitList) {
  const RendezvousState after =
      After(Waiting(With({"b"}), "a"), Action::kAddToParticipants, MinMax(3, 4));
  EXPECT_EQ(after.participants.at(Named("a")), 0);
  EXPECT_EQ(after.last_heartbeats.at(Named("a")), kLater);
  EXPECT_TRUE(after.wait_list.empty());
  EXPECT_FALSE(after.deadline);
}

TEST(ApplyTest, Rdzv069ReachingTheMinimumStartsTheLastCall) {
  EXPECT_EQ(After(With({"b"}), Action::kAddToParticipants, MinMax(2, 4)).deadline, kLater + 30s);
}

TEST(ApplyTest, Rdzv070JoiningBeyondTheMinimumDoesNotMoveIt) {
  RendezvousState state = With({"b", "c"});
  state.deadline = kNoon + 30s;
  EXPECT_EQ(After(state, Action::kAddToParticipants, MinMax(2, 4)).deadline, kNoon + 30s);
}

TEST(ApplyTest, Rdzv071ReachingTheMaximumCompletes) {
  RendezvousState state = With({"b", "c"});
  state.deadline = kNoon + 30s;
  RendezvousState after = After(state, Action::kAddToParticipants, MinMax(2, 3));
  EXPECT_TRUE(after.complete);
  EXPECT_FALSE(after.deadline);
  EXPECT_EQ(after.participants.at(Named("c")), 2);
  after = After(With({"b"}), Action::kAddToParticipants, MinMax(2, 2));
  EXPECT_TRUE(after.complete);
  EXPECT_FALSE(after.deadline);
}

RC_GTEST_PROP(ApplyProperty, Rdzv072RanksFollowTheNodesOrderNotTheirArrival,
              (std::set<std::pair<std::string, uint8_t>> names)) {
  RC_PRE(!names.empty());
  const RunSettings rules = MinMax(1, static_cast<int64_t>(names.size()));
  std::vector<Node> nodes;
  for (const auto& [addr, pid] : names) nodes.push_back({.addr = addr, .pid = pid});
  const std::vector<Node> sorted = nodes;
  const auto shuffled = *rc::gen::map(
      rc::gen::container<std::vector<uint32_t>>(nodes.size(), rc::gen::arbitrary<uint32_t>()),
      [&](const std::vector<uint32_t>& keys) {
        std::vector<size_t> order(nodes.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
          return std::pair(keys[a], a) < std::pair(keys[b], b);
        });
        return order;
      });
  RendezvousState state;
  for (const size_t i : shuffled) {
    Apply(Action::kAddToParticipants, nodes[i], rules, kNoon, &state);
  }
  RC_ASSERT(state.complete);
  for (size_t i = 0; i < sorted.size(); ++i) {
    RC_ASSERT(state.participants.at(sorted[i]) == static_cast<int64_t>(i));
  }
}

TEST(ApplyTest, Rdzv073WaitingEndsBeingASpare) {
  const RendezvousState after =
      After(Spare(Complete(With({"b"})), "a"), Action::kAddToWaitList, MinMax(1, 2));
  EXPECT_TRUE(after.redundancy_list.empty());
  EXPECT_TRUE(after.wait_list.contains(Named("a")));
  EXPECT_EQ(after.last_heartbeats.at(Named("a")), kLater);
}

TEST(ApplyTest, Rdzv074ASpareHasAHeartbeat) {
  const RendezvousState after =
      After(Complete(With({"b"})), Action::kAddToRedundancyList, MinMax(1, 1));
  EXPECT_TRUE(after.redundancy_list.contains(Named("a")));
  EXPECT_EQ(after.last_heartbeats.at(Named("a")), kLater);
}

TEST(ApplyTest, Rdzv075LeavingKeepsTheRoundWhenEnoughRemain) {
  RendezvousState state = With({"a", "b", "c"});
  state.deadline = kNoon + 30s;
  RendezvousState after = After(state, Action::kRemoveFromParticipants, MinMax(2, 4));
  EXPECT_EQ(after.deadline, kNoon + 30s);
  EXPECT_FALSE(after.last_heartbeats.contains(Named("a")));
  after = After(Complete(With({"a", "b"})), Action::kRemoveFromParticipants, MinMax(2, 2));
  EXPECT_TRUE(after.complete);
  EXPECT_EQ(after.round, 0);
}

TEST(ApplyTest, Rdzv076TheLastOneToLeaveACompleteRoundBeginsTheNext) {
  const RendezvousState after =
      After(Complete(With({"a"})), Action::kRemoveFromParticipants, MinMax(1, 1));
  EXPECT_FALSE(after.complete);
  EXPECT_EQ(after.round, 1);
}

TEST(ApplyTest, Rdzv077LeavingBelowTheMinimumEndsTheLastCall) {
  RendezvousState state = With({"a", "b"});
  state.deadline = kNoon + 30s;
  const RendezvousState after = After(state, Action::kRemoveFromParticipants, MinMax(2, 4));
  EXPECT_FALSE(after.deadline);
  EXPECT_EQ(after.round, 0);
}

TEST(ApplyTest, Rdzv078LeavingAListTakesTheHeartbeatAlong) {
  RendezvousState after =
      After(Waiting(Complete(With({"b"})), "a"), Action::kRemoveFromWaitList, MinMax(1, 2));
  EXPECT_EQ(after, Complete(With({"b"})));
  after = After(Spare(Complete(With({"b"})), "a"), Action::kRemoveFromRedundancyList, MinMax(1, 2));
  EXPECT_EQ(after, Complete(With({"b"})));
}

TEST(ApplyTest, Rdzv080ClosingChangesNothingElse) {
  RendezvousState expected = Complete(With({"a", "b"}));
  expected.closed = true;
  EXPECT_EQ(After(Complete(With({"a", "b"})), Action::kMarkClosed, MinMax(1, 2)), expected);
}

TEST(RestoreTest, PutsTheNodeBackWithItsRank) {
  RendezvousState state = Complete(With({"a", "b", "c"}));
  const RendezvousState before = state;
  Purge({Named("b")}, MinMax(1, 3), &state);
  Restore(Named("b"), 1, kNoon, &state);
  EXPECT_EQ(state, before);
}

// --- Purge ---

TEST(PurgeTest, Rdzv051TheDeadDisappearEverywhere) {
  RendezvousState state = Spare(Waiting(Complete(With({"a", "b"})), "c"), "d");
  Purge({Named("b"), Named("c"), Named("d")}, MinMax(1, 2), &state);
  EXPECT_EQ(state, Complete(With({"a"})));
}

TEST(PurgeTest, Rdzv052SurvivorsOfACompleteRoundKeepTheirRanks) {
  RendezvousState state = Complete(With({"a", "b", "c"}));
  state.round = 4;
  Purge({Named("a")}, MinMax(3, 3), &state);
  EXPECT_TRUE(state.complete);
  EXPECT_EQ(state.round, 4);
  EXPECT_EQ(state.participants.at(Named("b")), 1);
  EXPECT_EQ(state.participants.at(Named("c")), 2);
}

TEST(PurgeTest, Rdzv053WithoutMembersTheNextRoundBegins) {
  RendezvousState state = Complete(With({"a", "b"}));
  Purge({Named("a"), Named("b")}, MinMax(1, 2), &state);
  EXPECT_FALSE(state.complete);
  EXPECT_EQ(state.round, 1);
}

TEST(PurgeTest, Rdzv054BelowTheMinimumTheLastCallEnds) {
  RendezvousState state = With({"a", "b", "c"});
  state.deadline = kNoon;
  Purge({Named("a")}, MinMax(2, 4), &state);
  EXPECT_TRUE(state.deadline);
  Purge({Named("b")}, MinMax(2, 4), &state);
  EXPECT_FALSE(state.deadline);
}

TEST(PurgeTest, Rdzv055LosingOnlyWaitersOrSparesChangesNothingElse) {
  RendezvousState state = Spare(Waiting(With({"a"}), "c"), "d");
  state.deadline = kNoon;
  Purge({Named("c"), Named("d")}, MinMax(2, 4), &state);
  EXPECT_TRUE(state.deadline) << "though the members are fewer than the minimum";
  EXPECT_EQ(state.round, 0);
}

// --- Who is silent ---

RunSettings Slow() {
  RunSettings rules = MinMax(1, 4);
  rules.keep_alive_interval = 30s;
  rules.keep_alive_max_attempt = 3;
  return rules;
}

TEST(ObservationTest, Rdzv050SilentForMoreThanTheWindow) {
  Observation observed;
  const RendezvousState state = With({"a"});
  observed.See(state, kStart);
  EXPECT_TRUE(observed.Silent(state, Slow().dead_after(), kStart + 90s).empty());
  EXPECT_EQ(observed.Silent(state, Slow().dead_after(), kStart + 91s).size(), 1u);
}

TEST(ObservationTest, Rdzv058OnlyChangeCountsNotWhatAClockSays) {
  Observation observed;
  RendezvousState state = With({"a", "b"});
  state.last_heartbeats[Named("a")] = kNoon + 3600s;
  state.last_heartbeats[Named("b")] = kNoon + (-3600s);
  observed.See(state, kStart);
  EXPECT_TRUE(observed.Silent(state, 15s, kStart + 15s).empty());
  // A clock that was set back changes the value, too.
  state.last_heartbeats[Named("a")] = kNoon;
  observed.See(state, kStart + 15s);
  EXPECT_EQ(observed.Silent(state, 15s, kStart + 16s), std::set{Named("b")});
}

TEST(ObservationTest, Rdzv059WithoutAHeartbeatNobodyIsSilent) {
  Observation observed;
  RendezvousState state = With({"a"});
  state.last_heartbeats.clear();
  observed.See(state, kStart);
  EXPECT_TRUE(observed.Silent(state, 15s, kStart + 1000s).empty());
}

TEST(ObservationTest, ALastCallIsTimedFromWhenItWasFirstSeen) {
  Observation observed;
  RendezvousState state = With({"a"});
  observed.See(state, kStart);
  EXPECT_FALSE(observed.last_call_since());
  state.deadline = kNoon;
  observed.See(state, kStart + 1s);
  observed.See(state, kStart + 2s);
  EXPECT_EQ(observed.last_call_since(), kStart + 1s);
  state.deadline = kNoon + 1s;  // a new last call
  observed.See(state, kStart + 3s);
  EXPECT_EQ(observed.last_call_since(), kStart + 3s);
}

// --- Nodes ---

TEST(NodeTest, Rdzv021AsText) {
  EXPECT_EQ((Node{.addr = "dummy_fqdn", .pid = 3, .local_id = 5}.ToString()), "dummy_fqdn_3_5");
}

// Tables of nodes are ordered, not hashed: "hash equally" means here that equal nodes are one entry
// in each table, and that a node that differs in any field is another entry.
TEST(NodeTest, Rdzv022EqualNodesAreOneEntryAndAnyOtherFieldMakesAnother) {
  const Node node{.addr = "x", .pid = 3, .local_id = 5};
  const Node equal{.addr = std::string(1, 'x'), .pid = 3, .local_id = 5};
  EXPECT_EQ(node, equal);
  EXPECT_FALSE(node < equal || equal < node);
  RendezvousState state;
  state.participants[node] = 0;
  state.last_heartbeats[node] = kNoon;
  state.wait_list.insert(node);
  state.redundancy_list.insert(node);
  EXPECT_TRUE(state.participants.contains(equal));
  EXPECT_TRUE(state.last_heartbeats.contains(equal));
  EXPECT_FALSE(state.wait_list.insert(equal).second);
  EXPECT_FALSE(state.redundancy_list.insert(equal).second);

  int64_t rank = 0;
  for (const Node& other :
       {Node{.addr = "y", .pid = 3, .local_id = 5}, Node{.addr = "x", .pid = 4, .local_id = 5},
        Node{.addr = "x", .pid = 3, .local_id = 6}}) {
    SCOPED_TRACE(other.ToString());
    EXPECT_NE(node, other);
    EXPECT_NE(node < other, other < node);
    EXPECT_TRUE(state.participants.emplace(other, ++rank).second);
    EXPECT_TRUE(state.last_heartbeats.emplace(other, kNoon).second);
    EXPECT_TRUE(state.wait_list.insert(other).second);
    EXPECT_TRUE(state.redundancy_list.insert(other).second);
  }
  EXPECT_EQ(state.participants.size(), 4u);
  EXPECT_EQ(state.participants.at(equal), 0);
}

TEST(NodeTest, Rdzv023OrderedByAddressTextThenNumbers) {
  const auto node = [](const char* addr, int64_t pid, int64_t local_id) {
    return Node{.addr = addr, .pid = pid, .local_id = local_id};
  };
  EXPECT_LT(node("10.0.0.10", 1, 0), node("10.0.0.9", 1, 0));
  EXPECT_LT(node("B", 1, 0), node("b", 1, 0));
  EXPECT_LT(node("z", 1, 0), node("\xc3\xa4", 1, 0)) << "by code points";
  EXPECT_LT(node("a", 2, 9), node("a", 10, 0));
  EXPECT_LT(node("a", 2, 2), node("a", 2, 10));
}

}  // namespace
}  // namespace muster
