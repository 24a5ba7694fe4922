#include "sim/member_watch.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

namespace muster::sim {
namespace {

using Kind = MembershipEvent::Kind;

class MemberWatchTest : public testing::Test {
 protected:
  MemberWatchTest() {
    run.state.complete = true;
    run.state.round = 3;
    for (int64_t i = 0; i < 3; ++i) {
      const Node node{"n" + std::to_string(i), 1, 0};
      run.state.participants[node] = i;
      run.members[node].node = node;
      run.members[node].serial = static_cast<uint64_t>(i) + 1;
      ears[node] = {.round = 3, .listens = true};
    }
    Pass(0ms);
  }

  static Node NodeOf(int64_t i) { return {"n" + std::to_string(i), 1, 0}; }
  void Lose(int64_t i) {
    run.state.participants.erase(NodeOf(i));
    run.members.erase(NodeOf(i));
  }
  void Pass(Duration time) {
    now += time;
    watch.Look(1, run, now, Instant{}, true, [this](const Coordinator::Member& member) {
      const auto found = ears.find(member.node);
      return found == ears.end() ? std::nullopt : std::optional(found->second);
    });
  }
  void HearLoss(int64_t member, const std::string& who) {
    ears[NodeOf(member)].Add({.kind = Kind::kMemberLost, .round = 3, .who = who});
  }

  Plan plan{};
  Checkers checkers{plan};
  MemberWatch watch{plan, checkers};
  Coordinator::Run run;
  std::map<Node, Inbox> ears;
  WorldTime now{};
};

TEST_F(MemberWatchTest, AMemberThatDoesNotHearOfALossInTimeIsFound) {
  Lose(2);
  Pass(0ms);
  HearLoss(0, "n2_1_0");
  Pass(watch.within());
  EXPECT_EQ(checkers.violation(), "");
  Pass(1ms);
  EXPECT_TRUE(checkers.violation().starts_with("n1_1_0 has not heard that round 3 has lost n2_1_0"))
      << checkers.violation();
}

TEST_F(MemberWatchTest, EveryLossIsToBeHeardOf) {
  Lose(1);
  Pass(0ms);
  Lose(2);
  Pass(0ms);
  HearLoss(0, "n2_1_0");
  Pass(watch.within() + 1ms);
  EXPECT_NE(checkers.violation().find("has lost n1_1_0"), std::string::npos)
      << checkers.violation();
}

TEST_F(MemberWatchTest, ANodeThatLeftIsNoLoss) {
  run.state.participants.erase(NodeOf(2));  // and is still known
  Pass(0ms);
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "");
}

TEST_F(MemberWatchTest, ANodeThatStartedAnewWasLost) {
  run.state.participants.erase(NodeOf(2));
  run.members[NodeOf(2)].serial = 99;
  Pass(0ms);
  Pass(watch.within() + 1ms);
  EXPECT_NE(checkers.violation(), "");
}

TEST_F(MemberWatchTest, TheTimeBeginsAnewForWhoCouldNotHear) {
  Lose(2);
  Pass(0ms);
  const Inbox ear = ears[NodeOf(0)];
  HearLoss(1, "n2_1_0");
  ears.erase(NodeOf(0));  // out of reach
  Pass(1h);
  ears[NodeOf(0)] = ear;
  Pass(watch.within());
  EXPECT_EQ(checkers.violation(), "");
  ears[NodeOf(0)].listens = false;
  Pass(1h);
  ears[NodeOf(0)].listens = true;
  ++run.members[NodeOf(0)].incarnation;  // back with another connection
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "");
  Pass(watch.within() + 1ms);
  EXPECT_NE(checkers.violation(), "");
}

TEST_F(MemberWatchTest, NobodyOwesAnythingOfARoundThatIsOver) {
  Lose(2);
  Pass(0ms);
  run.state.round = 4;
  for (auto& [node, ear] : ears) ear.round = 4;
  Pass(1h);
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "");
}

TEST_F(MemberWatchTest, WhoWaitsIsTrueWhenTheFirstComesAndWhenTheLastHasGone) {
  run.state.wait_list.insert(NodeOf(7));
  Pass(0ms);
  Pass(watch.within());
  EXPECT_EQ(checkers.violation(), "");
  for (auto& [node, ear] : ears) ear.waiting = 1;
  Pass(1h);
  run.state.wait_list.clear();
  Pass(0ms);
  EXPECT_EQ(checkers.violation(), "");
  for (auto& [node, ear] : ears) ear.waiting = node == NodeOf(1) ? 1 : 0;
  Pass(watch.within() + 1ms);
  EXPECT_TRUE(checkers.violation().starts_with("NumNodesWaiting() of n1_1_0 in round 3 is 1; 0 "))
      << checkers.violation();
}

TEST_F(MemberWatchTest, InBetweenItMayBeTooLowByHalf) {
  for (auto& [node, ear] : ears) ear.waiting = 2;
  for (int64_t i = 5; i < 8; ++i) run.state.wait_list.insert(NodeOf(i));
  Pass(0ms);
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "") << "three wait, and two are told";
  run.state.wait_list.insert(NodeOf(8));
  Pass(0ms);
  Pass(watch.within() + 1ms);
  EXPECT_NE(checkers.violation(), "") << "they have doubled";
}

TEST_F(MemberWatchTest, InBetweenItMayBeTooHigh) {
  for (auto& [node, ear] : ears) ear.waiting = 4;
  run.state.wait_list.insert(NodeOf(5));
  Pass(0ms);
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "");
}

TEST_F(MemberWatchTest, ARoundThatDoesNotFormAgainIsAViolation) {
  run.state.complete = false;
  ++run.state.round;
  Pass(0ms);
  Pass(100ms);
  EXPECT_EQ(checkers.violation(), "");
  Pass(100ms);
  EXPECT_NE(checkers.violation().find("round 4 has not formed again"), std::string::npos)
      << checkers.violation();
}

TEST_F(MemberWatchTest, ALostMemberMayBeWaitedForShortly) {
  Lose(1);
  run.missing = 1;
  run.state.complete = false;
  ++run.state.round;
  Pass(0ms);
  Pass(600ms);
  EXPECT_EQ(checkers.violation(), "");
  Pass(100ms);
  EXPECT_NE(checkers.violation(), "");
}

}  // namespace
}  // namespace muster::sim
