#include "rendezvous/core/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/coordinator_test.h"

namespace muster {
namespace {

using Kind = Push::Kind;
using test::CoordinatorTest;
using test::MinMax;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CoordinatorSessionsTest : public CoordinatorTest {};

TEST_F(CoordinatorSessionsTest, AResumedSessionReceivesTheLossesThatItMissed) {
  OpenAndJoin({"a", "b", "c"}, MinMax(1, 3));
  Heard("a");
  Break("b");
  Pass(200ms, {"a", "c"});
  Break("a");
  Pass(200ms, {"c"});
  Open("a", MinMax(1, 3), talkers_["a"].key.token);
  const auto told = Heard("a");
  ASSERT_THAT(told, SizeIs(4));
  EXPECT_EQ(told[2].kind, Kind::kLost);
  EXPECT_EQ(told[2].who, "b_1_0");
}

TEST_F(CoordinatorSessionsTest, ASilentNodeIsLostAtItsTimeoutAndNotBefore) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  Pass(3s, {"a"});
  EXPECT_TRUE(State().participants.contains({"b", 1, 0}));
  EXPECT_EQ(coordinator_.NextDue(), now_ + 1ns);
  Pass(1ms, {"a"});
  EXPECT_FALSE(State().participants.contains({"b", 1, 0}));
  EXPECT_THAT(Heard("a").back().why, HasSubstr("not heard of for 3001 ms"));
}

TEST_F(CoordinatorSessionsTest, ABrokenSessionIsResumedWithinItsGrace) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  const uint64_t token = talkers_["b"].key.token;
  Heard("a");
  Heard("b");
  Break("b");
  Pass(299ms, {"a"});
  Open("b", MinMax(2, 2), token);
  const auto told = Heard("b");
  ASSERT_THAT(told, SizeIs(3));
  EXPECT_TRUE(told[0].resumed);
  EXPECT_EQ(told[0].token, token);
  EXPECT_EQ(told[1].kind, Kind::kComplete) << "it may have been sent during the break";
  EXPECT_EQ(told[2].kind, Kind::kNodesWaiting) << "and how many nodes wait now";
  Pass(10s, {"a", "b"});
  EXPECT_THAT(Heard("a"), IsEmpty());
  EXPECT_EQ(State().round, 0);
}

TEST_F(CoordinatorSessionsTest, AfterItsGraceItIsLostAndItsTokenIsInvalid) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  const uint64_t token = talkers_["b"].key.token;
  Heard("b");
  Break("b");
  Pass(300ms, {"a"});
  EXPECT_EQ(Heard("a").back().kind, Kind::kLost);
  Open("b", MinMax(2, 2), token);
  const auto told = Heard("b");
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_FALSE(told[0].resumed);
  EXPECT_NE(told[0].token, token);
}

TEST_F(CoordinatorSessionsTest, AStaleMessageIsRefused) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  const SessionKey old = talkers_["b"].key;
  Open("b", MinMax(2, 2), old.token);  // the old connection has not ended yet
  Heard("b");
  Run([&](Pushes& out) { coordinator_.Leave(old, now_, out); });
  EXPECT_THAT(Heard("b").at(0).why, HasSubstr("this session is over"));
  SessionKey wrong = talkers_["b"].key;
  ++wrong.token;
  Run([&](Pushes& out) { coordinator_.Leave(wrong, now_, out); });
  EXPECT_THAT(Heard("b").at(0).why, HasSubstr("another session"));
  SessionKey before = talkers_["b"].key;
  --before.incarnation;
  Run([&](Pushes& out) { coordinator_.Leave(before, now_, out); });
  EXPECT_EQ(Heard("b").at(0).refusal, Push::Refusal::kPast);
  Leave("b", 7);
  EXPECT_THAT(Heard("b").at(0).why, HasSubstr("round 7 is not the present one"));
  EXPECT_EQ(State().participants.size(), 2u);
}

TEST_F(CoordinatorSessionsTest, ASecondNodeOfTheSameIdentityIsRefused) {
  OpenAndJoin({"a"}, MinMax(2, 2));
  const SessionKey first = talkers_["a"].key;
  Open("a", MinMax(2, 2));
  EXPECT_THAT(Heard("a").back().why, HasSubstr("has a session already"));
  talkers_["a"].key = first;
  OpenAndJoin({"b"}, MinMax(2, 2));
  EXPECT_TRUE(State().complete) << "the first one is not affected";
}

TEST_F(CoordinatorSessionsTest, ANodeWithOtherSettingsIsRefusedAndBothNodesAreNamed) {
  OpenAndJoin({"a"}, MinMax(2, 4));
  Open("b", MinMax(2, 8));
  EXPECT_THAT(Heard("b").at(0).why, AllOf(HasSubstr("'a_1_0'"), HasSubstr("'b_1_0'"),
                                          HasSubstr("max_nodes 8 against 4")));
  Open("c", MinMax(0, 8));
  EXPECT_THAT(Heard("c").at(0).why, HasSubstr("0 to 8 nodes"));
}

TEST_F(CoordinatorSessionsTest, AResumedSessionReceivesItsRoundAndTheWaitingNodes) {
  OpenAndJoin({"a", "b"}, MinMax(1, 3));
  Pass(6s, {"a", "b"});
  Heard("a");
  Break("a");
  OpenAndJoin({"late"}, MinMax(1, 3));
  Open("a", MinMax(1, 3), talkers_["a"].key.token);
  EXPECT_THAT(Kinds("a"), ElementsAre(Kind::kOpened, Kind::kComplete, Kind::kNodesWaiting));
}

TEST_F(CoordinatorSessionsTest, AResumedSessionReceivesThatNoNodeWaitsAnyMore) {
  OpenAndJoin({"a", "b"}, MinMax(1, 3));
  Pass(6s, {"a", "b"});
  OpenAndJoin({"late"}, MinMax(1, 3));
  ASSERT_EQ(Heard("a").back().count, 1);
  Break("a");
  Leave("late", 0);
  Pass(100ms, {"b", "late"});
  Open("a", MinMax(1, 3), talkers_["a"].key.token);
  const Push last = Heard("a").back();
  EXPECT_EQ(last.kind, Kind::kNodesWaiting);
  EXPECT_EQ(last.count, 0);
}

TEST_F(CoordinatorSessionsTest, ARestartedServerReusesNoRoundNumber) {
  talkers_["a"].key.round = 41;  // a round number of an earlier server
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  EXPECT_EQ(State().round, 42);
  EXPECT_EQ(Heard("b").back().round, 42);
}

TEST_F(CoordinatorSessionsTest, SilenceWhileTheServerWasPausedDoesNotCount) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  Break("b");
  now_ = now_ + 10s;  // the server was paused
  coordinator_.ForgiveSilence(10s, now_);
  Pass(299ms, {"a"});
  EXPECT_EQ(State().participants.size(), 2u);
  Pass(1ms, {"a"});
  EXPECT_EQ(State().participants.size(), 1u) << "the rest of b's grace has passed";
}

// A server that was suspended for an hour first receives the ends of connections, and only then
// reads its clock.
TEST_F(CoordinatorSessionsTest, ALongGapDoesNotLengthenTheGraceOfAConnectionThatBreaksAfterIt) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  now_ = now_ + 1h;
  Break("b");
  coordinator_.ForgiveSilence(1h, now_);
  Pass(299ms, {"a"});
  EXPECT_EQ(State().participants.size(), 2u);
  Pass(1ms, {"a"});
  EXPECT_EQ(State().participants.size(), 1u);
}

TEST_F(CoordinatorSessionsTest, TheSessionOfALostNodeEnds) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  Pass(4s, {"a"});
  EXPECT_EQ(Heard("b").back().kind, Kind::kEnded);
}

}  // namespace
}  // namespace muster
