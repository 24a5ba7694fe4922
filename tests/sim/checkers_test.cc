#include "sim/checkers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::sim {
namespace {

using testing::HasSubstr;

// Each checker must report its violation; otherwise it might never report anything.
class CheckersTest : public testing::Test {
 protected:
  static Node At(int i) { return {"10.1.0." + std::to_string(i), 1, 0}; }
  static RendezvousState Complete(int64_t round, int count) {
    RendezvousState state{.round = round, .complete = true};
    for (int i = 0; i < count; ++i) state.participants[At(i)] = i;
    return state;
  }
  static Checkers::Joined Joined(int i, int64_t round, int64_t world_size) {
    return {.who = "node",
            .node = At(i),
            .is_torch_node = false,
            .known_to = 1,
            .round_before = -1,
            .info = {.store = nullptr,
                     .rank = i,
                     .world_size = world_size,
                     .round = round,
                     .bootstrap_store_info = {"10.1.0.0", 1234}}};
  }

  const Plan plan{.nodes = 4, .settings = {.min_nodes = 2, .max_nodes = 3}};
  Checkers checkers{plan};
};

TEST_F(CheckersTest, ARoundThatIsRightIsRight) {
  checkers.SeeState(1, {});
  checkers.SeeState(1, Complete(0, 3));
  for (int i = 0; i < 3; ++i) checkers.SeeJoined(Joined(i, 0, 3));
  EXPECT_EQ(checkers.violation(), "");
}

TEST_F(CheckersTest, RoundsOnlyGrow) {
  checkers.SeeState(1, {.round = 4});
  checkers.SeeState(1, {.round = 3});
  EXPECT_THAT(checkers.violation(), HasSubstr("round 3 after round 4"));
}

TEST_F(CheckersTest, ClosedStaysClosed) {
  checkers.SeeState(1, {.closed = true});
  checkers.SeeState(1, {.closed = false});
  EXPECT_THAT(checkers.violation(), HasSubstr("open again"));
}

TEST_F(CheckersTest, ANodeThatKnowsThatItIsClosedDoesNotForget) {
  bool knew = false;
  checkers.SeeClosed("node", true, knew);
  EXPECT_EQ(checkers.violation(), "");
  checkers.SeeClosed("node", false, knew);
  EXPECT_THAT(checkers.violation(), HasSubstr("forgotten"));
}

TEST_F(CheckersTest, ANodeThatKnowsThatItIsClosedHasNoPlaceAnyMore) {
  checkers.SeePlace("node", 3, false);
  EXPECT_EQ(checkers.violation(), "");
  checkers.SeePlace("node", 3, true);
  EXPECT_EQ(checkers.violation(), "node knew that it was closed, and is in round 3");
}

TEST_F(CheckersTest, TooFewOrTooMany) {
  checkers.SeeState(1, Complete(0, 1));
  EXPECT_THAT(checkers.violation(), HasSubstr("min_nodes is 2"));
  Checkers others(plan);
  others.SeeState(1, Complete(0, 4));
  EXPECT_THAT(others.violation(), HasSubstr("max_nodes is 3"));
}

TEST_F(CheckersTest, EveryRankOnce) {
  RendezvousState state = Complete(0, 3);
  state.participants[At(2)] = 1;
  checkers.SeeState(1, state);
  EXPECT_THAT(checkers.violation(), HasSubstr("twice"));
}

TEST_F(CheckersTest, RanksFollowTheNames) {
  RendezvousState state = Complete(0, 2);
  std::swap(state.participants[At(0)], state.participants[At(1)]);
  checkers.SeeState(1, state);
  EXPECT_THAT(checkers.violation(), HasSubstr("out of order"));
}

TEST_F(CheckersTest, NoNodeJoinsACompleteRound) {
  checkers.SeeState(1, Complete(0, 2));
  checkers.SeeState(1, Complete(0, 3));
  EXPECT_THAT(checkers.violation(), HasSubstr("after it was completed"));
}

TEST_F(CheckersTest, ARoundIsCompletedOnce) {
  checkers.SeeState(1, Complete(0, 2));
  checkers.SeeState(1, {.round = 0});
  checkers.SeeState(1, Complete(0, 2));
  EXPECT_THAT(checkers.violation(), HasSubstr("a second time"));
}

TEST_F(CheckersTest, InTheRoundOrWaitingNotBoth) {
  RendezvousState state = Complete(0, 2);
  state.wait_list.insert(At(1));
  checkers.SeeState(1, state);
  EXPECT_THAT(checkers.violation(), HasSubstr("waits for one"));
}

TEST_F(CheckersTest, AllAgreeOnTheSize) {
  checkers.SeeState(1, Complete(0, 3));
  checkers.SeeJoined(Joined(0, 0, 2));
  EXPECT_THAT(checkers.violation(), HasSubstr("believes in 2 nodes of 3"));
}

TEST_F(CheckersTest, AllAgreeOnWhereWorkersMeet) {
  checkers.SeeState(1, Complete(0, 3));
  checkers.SeeJoined(Joined(0, 0, 3));
  Checkers::Joined other = Joined(1, 0, 3);
  other.info.bootstrap_store_info.master_port = 99;
  checkers.SeeJoined(other);
  EXPECT_THAT(checkers.violation(), HasSubstr(":99, others at"));
}

TEST_F(CheckersTest, ARoundThatWasNotCompleted) {
  checkers.SeeJoined(Joined(0, 7, 3));
  EXPECT_THAT(checkers.violation(), HasSubstr("no node has completed"));
}

TEST_F(CheckersTest, ANodesRoundsOnlyGrow) {
  checkers.SeeState(1, Complete(0, 3));
  Checkers::Joined again = Joined(0, 0, 3);
  again.round_before = 0;
  checkers.SeeJoined(again);
  EXPECT_THAT(checkers.violation(), HasSubstr("was in round 0 before"));
}

TEST_F(CheckersTest, AnEvictedAndNotifiedNodeDoesNotContinue) {
  checkers.SeeWork("node", 3, 100us);
  EXPECT_EQ(checkers.violation(), "");
  checkers.SeeWork("node", 3, 200ms);
  EXPECT_THAT(checkers.violation(), HasSubstr("after it was notified"));
}

TEST_F(CheckersTest, WhatIsOfThePastChangesNothing) {
  checkers.SeeStale({.state = {.round = 1}}, {.state = {.round = 1}});
  EXPECT_EQ(checkers.violation(), "");
  checkers.SeeStale({.state = {.round = 1}}, {.state = {.round = 2}});
  EXPECT_THAT(checkers.violation(), HasSubstr("earlier session"));
}

TEST_F(CheckersTest, AnOutdatedMessageKeepsNoNodeAlive) {
  checkers.SeeStale({.members = "a seen 1"}, {.members = "a seen 1"});
  EXPECT_EQ(checkers.violation(), "");
  checkers.SeeStale({.members = "a seen 1"}, {.members = "a seen 2"});
  EXPECT_THAT(checkers.violation(), HasSubstr("changed a member"));
}

}  // namespace
}  // namespace muster::sim
