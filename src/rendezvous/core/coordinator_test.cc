#include "rendezvous/core/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/coordinator_test.h"

namespace muster {
namespace {

using Kind = Push::Kind;
using test::CoordinatorTest;
using test::MinMax;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(CoordinatorTest, ARoundIsCompleteTheMomentTheLastNodeComes) {
  OpenAndJoin({"node10", "node2"}, MinMax(3, 3));
  EXPECT_THAT(Kinds("node10"), ElementsAre(Kind::kOpened, Kind::kAdmitted));
  OpenAndJoin({"node1"}, MinMax(3, 3));
  EXPECT_THAT(Kinds("node1"), ElementsAre(Kind::kOpened, Kind::kComplete))
      << "one join, one answer";
  const auto told = Heard("node10");
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].kind, Kind::kComplete);
  EXPECT_EQ(told[0].rank, 2) << "node2 comes before node10";
  EXPECT_EQ(told[0].world_size, 3);
  EXPECT_EQ(told[0].round, 0);
  EXPECT_EQ(told[0].addr, "node1");
  EXPECT_EQ(told[0].port, 4711);
}

TEST_F(CoordinatorTest, TheLastCallCompletesARoundWithEnough) {
  OpenAndJoin({"a", "b"}, MinMax(2, 4));
  Pass(5s, {"a", "b"});
  EXPECT_FALSE(State().complete) << "until the last call is over";
  Pass(500ms, {"a", "b"});
  EXPECT_THAT(Kinds("a"), ElementsAre(Kind::kOpened, Kind::kAdmitted, Kind::kComplete));
}

TEST_F(CoordinatorTest, LateNodesWaitAndAreAnnouncedAndFormTheNextRound) {
  OpenAndJoin({"a", "b"}, MinMax(2, 3));
  Pass(6s, {"a", "b"});
  Heard("a");
  OpenAndJoin({"c"}, MinMax(2, 3));
  EXPECT_THAT(Kinds("c"), ElementsAre(Kind::kOpened, Kind::kWaiting));
  const auto told = Heard("a");
  ASSERT_THAT(told, ElementsAre(::testing::Field(&Push::kind, Kind::kNodesWaiting)));
  EXPECT_EQ(told[0].count, 1);
  Leave("c", 0);
  EXPECT_THAT(Heard("a"), IsEmpty()) << "there is a pause between two of them";
  Pass(100ms, {"a", "b", "c"});
  EXPECT_THAT(Heard("a"), ElementsAre(::testing::Field(&Push::count, 0)));
  Join("c");
  Join("a");
  Join("b");
  EXPECT_EQ(State().round, 1);
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(Heard("c").back().kind, Kind::kComplete);
}

TEST_F(CoordinatorTest, ACrowdThatWaitsIsAnnouncedTwice) {
  OpenAndJoin({"a", "b"}, MinMax(1, 1000));
  Pass(6s, {"a", "b"});
  Heard("a");
  const auto counts = [this] {
    std::vector<int64_t> told;
    for (const Push& push : Heard("a")) {
      EXPECT_EQ(push.kind, Kind::kNodesWaiting);
      told.push_back(push.count);
    }
    return told;
  };
  for (int i = 0; i < 100; ++i) OpenAndJoin({"late" + std::to_string(i)}, MinMax(1, 1000));
  EXPECT_THAT(counts(), ElementsAre(1)) << "the first at once";
  Pass(99ms, {});
  EXPECT_THAT(counts(), IsEmpty());
  Pass(1ms, {});
  EXPECT_THAT(counts(), ElementsAre(100));
  for (int i = 100; i < 200; ++i) {
    Pass(1ms, {"a", "b"});
    OpenAndJoin({"late" + std::to_string(i)}, MinMax(1, 1000));
  }
  EXPECT_THAT(counts(), ElementsAre(200)) << "twice as many as before, and 100 ms after";
}

TEST_F(CoordinatorTest, ANodeThatJoinsAndLeavesAgainAndAgainIsAnnouncedTenTimesASecond) {
  OpenAndJoin({"a", "b"}, MinMax(2, 3));
  Pass(6s, {"a", "b"});
  Heard("a");
  OpenAndJoin({"c"}, MinMax(2, 3));
  for (int i = 0; i < 1000; ++i) {
    Leave("c", 0);
    Join("c");
    if (i % 2 == 1) Pass(1ms, {"a", "b", "c"});
  }
  const auto told = Heard("a");
  EXPECT_GE(told.size(), 1u);
  EXPECT_LE(told.size(), 6u) << "in half a second";
  Leave("c", 0);
  Pass(200ms, {"a", "b", "c"});
  EXPECT_EQ(Heard("a").back().count, 0) << "the last word is true";
}

TEST_F(CoordinatorTest, ASpareTakesThePlaceOfTheLostWithoutALastCall) {
  OpenAndJoin({"a", "b"}, MinMax(1, 2));
  OpenAndJoin({"c"}, MinMax(1, 2));
  EXPECT_THAT(Kinds("c"), ElementsAre(Kind::kOpened, Kind::kSpare));
  Heard("a");
  Break("b");
  Pass(1s, {"a", "c"});
  const auto told = Heard("a");
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].kind, Kind::kLost);
  EXPECT_EQ(told[0].who, "b_1_0");
  EXPECT_THAT(told[0].why, HasSubstr("connection"));
  EXPECT_EQ(told[1].kind, Kind::kNodesWaiting);
  Join("a");
  EXPECT_EQ(Heard("a").back().kind, Kind::kComplete);
  EXPECT_EQ(Heard("c").back().kind, Kind::kComplete);
  EXPECT_EQ(State().round, 1);
}

TEST_F(CoordinatorTest, WhereManyDieTheOthersAreNotToldOfEach) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("n" + std::to_string(i));
  OpenAndJoin(names, MinMax(1, 100));
  Heard("n0");
  for (int i = 1; i < 100; ++i) {
    Break(names[static_cast<size_t>(i)]);
    Pass(1ms, {"n0"});
  }
  for (int i = 0; i < 60; ++i) Pass(10ms, {"n0"});
  const auto told = Heard("n0");
  EXPECT_LE(told.size(), 4u);
  EXPECT_THAT(told[0].who, HasSubstr("n1_1_0")) << "the first one at once";
  int64_t lost = 0;
  for (const Push& push : told) lost += push.count;
  EXPECT_EQ(lost, 99) << "and all in the end";
  EXPECT_THAT(told[1].who, HasSubstr(" more"));
}

TEST_F(CoordinatorTest, OfManySparesOnlySoManyArePromotedAsThereArePlaces) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  OpenAndJoin({"c", "d", "e"}, MinMax(2, 2));
  Break("a");
  Pass(1s, {"b", "c", "d", "e"});
  EXPECT_EQ(State().redundancy_list.size(), 2u);
  Join("b");
  EXPECT_TRUE(State().complete);
  EXPECT_TRUE(State().participants.contains({"b", 1, 0})) << "the survivor keeps its place";
  EXPECT_EQ(State().redundancy_list.size(), 2u);
  EXPECT_THAT(State().wait_list, IsEmpty()) << "nobody waits for a place that there is not";
  Heard("b");
  Pass(10s, {"b", "c", "d", "e"});
  EXPECT_THAT(Heard("b"), IsEmpty());
}

TEST_F(CoordinatorTest, WhoWaitedInVainIsASpareAndNobodyIsAskedToComeAgain) {
  OpenAndJoin({"a", "b"}, MinMax(1, 2));
  Break("b");
  Pass(1s, {"a"});
  OpenAndJoin({"c", "d", "e"}, MinMax(1, 2));
  Heard("a");
  Join("a");
  EXPECT_TRUE(State().complete);
  EXPECT_TRUE(State().participants.contains({"a", 1, 0}));
  EXPECT_EQ(State().redundancy_list.size(), 2u);
  EXPECT_THAT(State().wait_list, IsEmpty());
  EXPECT_THAT(Kinds("a"), ElementsAre(Kind::kAdmitted, Kind::kComplete));
  EXPECT_EQ(Heard("e").back().kind, Kind::kSpare);
}

TEST_F(CoordinatorTest, ARoundThatFormedMeanwhileDoesNotMakeAnOldNumberNew) {
  OpenAndJoin({"new"}, MinMax(1, 2));
  Pass(6s, {"new"});
  EXPECT_EQ(State().round, 0);
  talkers_["old"].key.round = 5;  // a round number of an earlier server
  OpenAndJoin({"old"}, MinMax(1, 2));
  Join("new");
  EXPECT_EQ(Heard("old").back().round, 6);
}

TEST_F(CoordinatorTest, ClosingReachesEverybodyAndLaterOnesToo) {
  OpenAndJoin({"a", "b"}, MinMax(1, 2));
  OpenAndJoin({"spare"}, MinMax(1, 2));
  for (const char* name : {"a", "b", "spare"}) Heard(name);
  Close("a", "the disk is full");
  EXPECT_THAT(Heard("b").at(0).who, HasSubstr("a_1_0: the disk is full"));
  EXPECT_TRUE(Heard("spare").at(0).graceful);
  Close("b", "me too");
  EXPECT_THAT(Heard("b").at(0).who, HasSubstr("the disk is full")) << "the first reason stays";
  OpenAndJoin({"late"}, MinMax(1, 2));
  EXPECT_THAT(Kinds("late"), ElementsAre(Kind::kOpened, Kind::kClosed));
}

TEST_F(CoordinatorTest, AClosedRoundThatWasFormingRestsInPeace) {
  OpenAndJoin({"a", "b"}, MinMax(2, 4));
  Close("a", "");
  EXPECT_EQ(Heard("b").back().kind, Kind::kClosed);
  Pass(10s, {"a", "b"});
  EXPECT_FALSE(State().complete);
}

TEST_F(CoordinatorTest, AJoinThatComesToNothingEndsInTime) {
  Open("a", MinMax(2, 2));
  Join("a", 2s);
  Pass(2s, {"a"});
  EXPECT_EQ(State().participants.size(), 1u);
  Pass(1ms, {"a"});
  EXPECT_EQ(Heard("a").back().kind, Kind::kTimedOut);
  EXPECT_THAT(State().participants, IsEmpty());
  Join("a");
  EXPECT_EQ(Heard("a").back().kind, Kind::kAdmitted) << "it may try again";
}

TEST_F(CoordinatorTest, AServerThatLooksLateStillTakesOutWhoIsTooLate) {
  Open("a", MinMax(2, 2));
  Join("a", 2s);
  now_ = now_ + 2s;
  KeepAlive({"a"});
  now_ = now_ + 2s;
  KeepAlive({"a"});
  now_ = now_ + 2s;
  KeepAlive({"a"});
  now_ = now_ + 2s;
  KeepAlive({"a"});
  Pass(1ms, {"a"});
  EXPECT_EQ(Heard("a").back().kind, Kind::kTimedOut);
  EXPECT_THAT(State().participants, IsEmpty());
}

TEST_F(CoordinatorTest, ALastCallAndAJoinMayEndInOneInstant) {
  Open("a", MinMax(1, 3));
  Join("a", 5s);
  Open("b", MinMax(1, 3));
  Join("b", 600s);
  now_ = now_ + 4s;
  KeepAlive({"a", "b"});
  now_ = now_ + 2s;
  Pass(1ms, {"a", "b"});
  EXPECT_EQ(Heard("a").back().kind, Kind::kTimedOut);
  EXPECT_EQ(Heard("b").back().world_size, 1);
}

TEST_F(CoordinatorTest, ThoseWhoAreLostTogetherAreNotMetAgain) {
  OpenAndJoin({"a"}, MinMax(1, 2));
  Pass(6s, {"a"});
  OpenAndJoin({"b", "c"}, MinMax(1, 2));
  Break("a");
  Break("b");
  Pass(1s, {"c"});
  EXPECT_THAT(State().participants, SizeIs(1)) << "c alone, not beside b";
  EXPECT_FALSE(State().complete);
}

TEST_F(CoordinatorTest, ASpareWaitsWithoutLimit) {
  OpenAndJoin({"a"}, MinMax(1, 1));
  Open("s", MinMax(1, 1));
  Join("s", 1s);
  Pass(60s, {"a", "s"});
  EXPECT_THAT(Kinds("s"), ElementsAre(Kind::kOpened, Kind::kSpare));
}

TEST_F(CoordinatorTest, LeavingTwiceIsAnsweredTwice) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  Heard("a");
  Leave("a", 0);
  EXPECT_THAT(Kinds("a"), ElementsAre(Kind::kLeft));
  Leave("a", 0);
  EXPECT_THAT(Kinds("a"), ElementsAre(Kind::kLeft));
  EXPECT_EQ(State().participants.size(), 1u);
}

TEST_F(CoordinatorTest, JoiningTwiceChangesNothing) {
  OpenAndJoin({"a"}, MinMax(2, 2));
  Heard("a");
  Join("a");
  EXPECT_THAT(Kinds("a"), ElementsAre(Kind::kAdmitted));
}

TEST_F(CoordinatorTest, AJoinSentBeforeItsAnswerWasHeardDoesNotLeaveTheRound) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  Heard("b");
  talkers_["b"].key.round = -1;  // the connection broke before the answer arrived
  Break("b");
  Open("b", MinMax(2, 2), talkers_["b"].key.token);
  talkers_["b"].key.round = -1;
  Join("b");
  const auto told = Heard("b");
  ASSERT_THAT(told, SizeIs(5));
  EXPECT_EQ(told[3].refusal, Push::Refusal::kPast);
  EXPECT_EQ(told[4].kind, Kind::kComplete);
  EXPECT_EQ(State().round, 0);
  EXPECT_EQ(State().participants.size(), 2u);
}

TEST_F(CoordinatorTest, TheBootstrapAddressLeadsThereFromEveryMember) {
  const auto come = [&](const std::string& addr, const std::string& server_addr) {
    Open(addr, MinMax(2, 2));
    coordinator_.Disconnect(talkers_[addr].key.session, now_);
    talkers_[addr].key.session = SessionId{++sessions_};
    by_session_[sessions_] = addr;
    talkers_[addr].hello.server_addr = server_addr;
    Run([&](Pushes& out) {
      coordinator_.Open(talkers_[addr].key.session, talkers_[addr].hello, now_, out);
    });
    Join(addr);
  };
  come("127.0.0.1", "127.0.0.1");
  come("192.168.0.7", "192.168.0.1");
  EXPECT_EQ(Heard("192.168.0.7").back().addr, "192.168.0.1");
  EXPECT_EQ(Heard("127.0.0.1").back().addr, "192.168.0.1");
}

TEST_F(CoordinatorTest, TheReportSaysWhoIsWhereAndWhoIsLate) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  OpenAndJoin({"spare"}, MinMax(2, 2));
  Open("idle", MinMax(2, 2));
  Pass(2s, {"a", "spare", "idle"});
  const RunReport report = *coordinator_.Report("run", 100, now_);
  EXPECT_EQ(report.phase, RunReport::Phase::kComplete);
  EXPECT_EQ(report.participants, 2);
  EXPECT_EQ(report.spares, 1);
  EXPECT_EQ(report.idle, 1);
  ASSERT_THAT(report.members, SizeIs(4));
  EXPECT_EQ(report.members[1].node.addr, "b");
  EXPECT_EQ(report.members[1].rank, 1);
  EXPECT_TRUE(report.members[1].late);
  EXPECT_EQ(report.members[1].silent_for, 2s);
  EXPECT_FALSE(report.members[0].late);
  const RunReport bounded = *coordinator_.Report("run", 1, now_);
  ASSERT_THAT(bounded.members, SizeIs(3)) << "one of each role";
  EXPECT_EQ(bounded.members[0].node.addr, "b") << "the one that is late";
  EXPECT_EQ(coordinator_.Report("no such run", 1, now_), std::nullopt);
}

TEST_F(CoordinatorTest, RunsThatEndedAreForgottenAndRunsAreBounded) {
  OpenAndJoin({"a"}, MinMax(1, 1));
  Leave("a", 0);
  Break("a");
  Pass(601s, {});
  EXPECT_EQ(coordinator_.Find("run"), nullptr);
  EXPECT_TRUE(coordinator_.Reports("", 1, now_).empty());
  EXPECT_EQ(coordinator_.NextDue(), Instant::Never());
}

TEST_F(CoordinatorTest, ARunThatEndedMakesRoomForANewOne) {
  Coordinator small({.runs_max = 2});
  Pushes out;
  uint64_t session = 0;
  const auto open = [&](const std::string& run) {
    out.clear();
    small.Open(SessionId{++session}, {.run_id = run, .node = {"a", 1, 0}}, now_, out);
    return out.at(0).kind;
  };
  EXPECT_EQ(open("first"), Kind::kOpened);
  EXPECT_EQ(open("second"), Kind::kOpened);
  EXPECT_EQ(open("third"), Kind::kRefused);
  small.Disconnect(SessionId{1}, now_);
  small.Tick(now_ + 300ms, out);
  EXPECT_EQ(open("third"), Kind::kOpened);
  EXPECT_EQ(small.Find("first"), nullptr);
}

TEST_F(CoordinatorTest, RunsAndNodesHaveSoMuchMemoryAndNoMore) {
  Coordinator small({.bytes_max = 1 << 20});
  Pushes out;
  uint64_t session = 0;
  const auto open = [&](const std::string& run) {
    out.clear();
    const Hello hello{.run_id = run,
                      .node = {"a", static_cast<int64_t>(++session), 0},
                      .label = std::string(kNodeNameBytesMax, 'x')};
    small.Open(SessionId{session}, hello, now_, out);
    return out.at(0).kind;
  };
  uint64_t nodes = 0;
  while (open("run") == Kind::kOpened) ++nodes;
  EXPECT_GT(nodes, 500u);
  EXPECT_LT(nodes, 1'500u);
  EXPECT_EQ(open(std::string(4000, 'r')), Kind::kRefused);
  for (uint64_t gone = 1; gone <= nodes; ++gone) small.Disconnect(SessionId{gone}, now_);
  small.Tick(now_ + 300ms, out);
  uint64_t again = 0;
  while (open("run") == Kind::kOpened) ++again;
  EXPECT_EQ(again, nodes);
}

TEST_F(CoordinatorTest, AnAddressThatUsesUpTheRunsLeavesAQuarterToOthers) {
  Coordinator small({.runs_max = 8});
  uint64_t sessions = 0;
  const auto open = [&](const std::string& from) {
    Pushes out;
    const SessionId session{++sessions};
    const Hello hello{.run_id = std::to_string(sessions), .node = {"a", 1, 0}, .from = from};
    small.Open(session, hello, now_, out);
    return out.at(0).kind;
  };
  for (int i = 0; i < 8; ++i) EXPECT_EQ(open("flooder"), Kind::kOpened);
  EXPECT_EQ(open("flooder"), Kind::kRefused);
  EXPECT_EQ(open("another"), Kind::kOpened);
  EXPECT_EQ(open("flooder"), Kind::kRefused);
  EXPECT_EQ(open("another"), Kind::kOpened);
  EXPECT_EQ(open("another"), Kind::kRefused) << "these have their limit, too";
  EXPECT_EQ(open(""), Kind::kRefused);
  for (uint64_t gone = 1; gone <= sessions; ++gone) small.Disconnect(SessionId{gone}, now_);
  Pushes out;
  small.Tick(now_ + 700s, out);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(open("another"), Kind::kOpened) << "all shares are free";
}

TEST_F(CoordinatorTest, AnAddressThatUsesUpTheMemoryLeavesAQuarterToOthers) {
  Coordinator small({.bytes_max = 1 << 20});
  uint64_t sessions = 0;
  const auto fill = [&](const std::string& from) {
    uint64_t nodes = 0;
    while (true) {
      Pushes out;
      const Hello hello{.run_id = "run",
                        .node = {"a", static_cast<int64_t>(++sessions), 0},
                        .label = std::string(4000, 'x'),
                        .from = from};
      small.Open(SessionId{sessions}, hello, now_, out);
      if (out.at(0).kind != Kind::kOpened) return nodes;
      ++nodes;
    }
  };
  const uint64_t all = fill("flooder");
  EXPECT_EQ(fill("another"), all / 4);
  EXPECT_EQ(fill("flooder"), 0u);
  for (uint64_t gone = 1; gone <= sessions; ++gone) small.Disconnect(SessionId{gone}, now_);
  Pushes out;
  small.Tick(now_ + 300ms, out);
  EXPECT_EQ(fill("another"), all);
}

TEST_F(CoordinatorTest, ARankOfLongAgoIsNotDefended) {
  RunSettings settings = MinMax(1, 2);
  settings.policy = RankPolicy::kStable;
  OpenAndJoin({"m", "z"}, settings);  // m has 0, z has 1
  Leave("m", 0);
  Join("z");
  Pass(6s, {"m", "z"});  // z alone has 0
  EXPECT_EQ(State().participants.at({"z", 1, 0}), 0);
  Join("m");
  Join("z");
  EXPECT_EQ(State().participants.at({"z", 1, 0}), 0) << "it was in the last round";
  EXPECT_EQ(State().participants.at({"m", 1, 0}), 1);
}

TEST_F(CoordinatorTest, StableRanksSurviveALoss) {
  RunSettings settings = MinMax(2, 3);
  settings.policy = RankPolicy::kStable;
  OpenAndJoin({"a", "b", "c"}, settings);
  Break("a");
  Pass(1s, {"b", "c"});
  Join("b");
  Join("c");
  OpenAndJoin({"d"}, settings);
  EXPECT_EQ(State().round, 1);
  EXPECT_EQ(State().participants.at({"b", 1, 0}), 1);
  EXPECT_EQ(State().participants.at({"c", 1, 0}), 2);
  EXPECT_EQ(State().participants.at({"d", 1, 0}), 0);
}

}  // namespace
}  // namespace muster
