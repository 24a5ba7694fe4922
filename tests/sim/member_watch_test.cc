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
      inboxes[node] = {.round = 3, .listens = true};
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
      const auto found = inboxes.find(member.node);
      return found == inboxes.end() ? std::nullopt : std::optional(found->second);
    });
  }
  void HearLoss(int64_t member, const std::string& who) {
    inboxes[NodeOf(member)].Add({.kind = Kind::kMemberLost, .round = 3, .who = who});
  }

  Plan plan{};
  Checkers checkers{plan};
  MemberWatch watch{plan, checkers};
  Coordinator::Run run;
  std::map<Node, Inbox> inboxes;
  WorldTime now{};
};

TEST_F(MemberWatchTest, AMemberThatIsNotNotifiedOfALossInTimeIsFound) {
  Lose(2);
  Pass(0ms);
  HearLoss(0, "n2_1_0");
  Pass(watch.within());
  EXPECT_EQ(checkers.violation(), "");
  Pass(1ms);
  EXPECT_TRUE(
      checkers.violation().starts_with("n1_1_0 was not notified that round 3 has lost n2_1_0"))
      << checkers.violation();
}

TEST_F(MemberWatchTest, EveryLossMustBeReported) {
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

TEST_F(MemberWatchTest, ARestartedNodeWasLost) {
  run.state.participants.erase(NodeOf(2));
  run.members[NodeOf(2)].serial = 99;
  Pass(0ms);
  Pass(watch.within() + 1ms);
  EXPECT_NE(checkers.violation(), "");
}

TEST_F(MemberWatchTest, TheTimeStartsAgainForAMemberThatWasUnreachable) {
  Lose(2);
  Pass(0ms);
  const Inbox inbox = inboxes[NodeOf(0)];
  HearLoss(1, "n2_1_0");
  inboxes.erase(NodeOf(0));  // out of reach
  Pass(1h);
  inboxes[NodeOf(0)] = inbox;
  Pass(watch.within());
  EXPECT_EQ(checkers.violation(), "");
  inboxes[NodeOf(0)].listens = false;
  Pass(1h);
  inboxes[NodeOf(0)].listens = true;
  ++run.members[NodeOf(0)].incarnation;  // back with another connection
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "");
  Pass(watch.within() + 1ms);
  EXPECT_NE(checkers.violation(), "");
}

TEST_F(MemberWatchTest, NothingIsRequiredForARoundThatIsOver) {
  Lose(2);
  Pass(0ms);
  run.state.round = 4;
  for (auto& [node, inbox] : inboxes) inbox.round = 4;
  Pass(1h);
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "");
}

TEST_F(MemberWatchTest, TheWaitingCountIsCorrectWhenTheFirstComesAndWhenTheLastHasGone) {
  run.state.wait_list.insert(NodeOf(7));
  Pass(0ms);
  Pass(watch.within());
  EXPECT_EQ(checkers.violation(), "");
  for (auto& [node, inbox] : inboxes) inbox.waiting = 1;
  Pass(1h);
  run.state.wait_list.clear();
  Pass(0ms);
  EXPECT_EQ(checkers.violation(), "");
  for (auto& [node, inbox] : inboxes) inbox.waiting = node == NodeOf(1) ? 1 : 0;
  Pass(watch.within() + 1ms);
  EXPECT_TRUE(checkers.violation().starts_with("NumNodesWaiting() of n1_1_0 in round 3 is 1; 0 "))
      << checkers.violation();
}

TEST_F(MemberWatchTest, InBetweenItMayBeTooLowByHalf) {
  for (auto& [node, inbox] : inboxes) inbox.waiting = 2;
  for (int64_t i = 5; i < 8; ++i) run.state.wait_list.insert(NodeOf(i));
  Pass(0ms);
  Pass(1h);
  EXPECT_EQ(checkers.violation(), "") << "three wait, and two are reported";
  run.state.wait_list.insert(NodeOf(8));
  Pass(0ms);
  Pass(watch.within() + 1ms);
  EXPECT_NE(checkers.violation(), "") << "they have doubled";
}

TEST_F(MemberWatchTest, InBetweenItMayBeTooHigh) {
  for (auto& [node, inbox] : inboxes) inbox.waiting = 4;
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
