// When a round re-forms, the coordinator knows which nodes may still arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rendezvous/core/coordinator.h"
#include "support/coordinator_test.h"

namespace muster {
namespace {

using Kind = Push::Kind;
using test::MinMax;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ReformingTest : public test::CoordinatorTest {
 protected:
  /// Forms the first round of these nodes.
  void Form(const std::vector<std::string>& names, const RunSettings& settings) {
    OpenAndJoin(names, settings);
    if (!State().complete) Pass(5500ms, names);
    ASSERT_TRUE(State().complete);
    for (const std::string& name : names) Heard(name);
  }
  void JoinAll(const std::vector<std::string>& names) {
    for (const std::string& name : names) Join(name);
  }
  /// The node dies, and its grace ends.
  void Kill(const std::string& name, const std::vector<std::string>& alive) {
    Break(name);
    Pass(500ms, alive);
  }
  RunReport Report() { return *coordinator_.Report("run", 8, now_); }
};

TEST_F(ReformingTest, AfterALossTheSurvivorsWaitForTheReformTimeoutOnly) {
  Form({"a", "b", "c"}, MinMax(2, 3));
  Kill("c", {"a", "b"});
  JoinAll({"a", "b"});
  EXPECT_FALSE(State().complete) << "c may come back";
  EXPECT_EQ(Report().last_call_left, 500ms);
  Pass(500ms, {"a", "b"});
  EXPECT_FALSE(State().complete);
  Pass(1ms, {"a", "b"});
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(State().round, 1);
  EXPECT_EQ(Heard("a").back().world_size, 2);
}

TEST_F(ReformingTest, ANodeThatComesWithinTheReformTimeoutIsInTheRound) {
  Form({"a", "b", "c"}, MinMax(2, 4));
  Kill("c", {"a", "b"});
  JoinAll({"a", "b"});
  Pass(300ms, {"a", "b"});
  OpenAndJoin({"c2"}, MinMax(2, 4));
  Pass(201ms, {"a", "b", "c2"});
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(State().participants.size(), 3u);
}

TEST_F(ReformingTest, WithoutALossNothingIsWaitedFor) {
  Form({"a", "b", "c"}, MinMax(2, 4));
  JoinAll({"a", "b"});
  EXPECT_TRUE(State().complete) << "c has not come back yet";
  EXPECT_EQ(State().round, 0);
  Join("c");
  EXPECT_EQ(State().round, 1);
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(State().participants.size(), 3u);
}

TEST_F(ReformingTest, AMemberThatLeavesIsNotWaitedFor) {
  Form({"a", "b", "c"}, MinMax(2, 4));
  JoinAll({"a", "b"});
  Leave("c", 0);
  EXPECT_EQ(State().round, 1);
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(State().participants.size(), 2u);
}

TEST_F(ReformingTest, ANewcomerIsInTheNextRoundWithoutALastCall) {
  RunSettings settings = MinMax(1, 4);
  Form({"a", "b"}, settings);
  OpenAndJoin({"c"}, settings);
  JoinAll({"a", "b"});
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(State().participants.size(), 3u) << "not a round of the first that joined again";
}

TEST_F(ReformingTest, AMemberThatDiesOnItsWayBackMayComeBack) {
  Form({"a", "b", "c"}, MinMax(2, 4));
  Join("a");
  Kill("a", {"b", "c"});
  JoinAll({"b", "c"});
  EXPECT_FALSE(State().complete);
  Pass(501ms, {"b", "c"});
  EXPECT_TRUE(State().complete);
}

TEST_F(ReformingTest, TooFewSurvivorsWaitForMoreAndThenShortly) {
  Form({"a", "b", "c"}, MinMax(2, 3));
  Break("c");
  Kill("b", {"a"});
  Join("a");
  Pass(20s, {"a"});
  EXPECT_FALSE(State().complete);
  OpenAndJoin({"b2"}, MinMax(2, 3));
  Pass(501ms, {"a", "b2"});
  EXPECT_TRUE(State().complete);
}

TEST_F(ReformingTest, AShorterLastCallIsNotMadeLonger) {
  RunSettings settings = MinMax(2, 3);
  settings.last_call = 100ms;
  Form({"a", "b", "c"}, settings);
  Kill("c", {"a", "b"});
  JoinAll({"a", "b"});
  Pass(101ms, {"a", "b"});
  EXPECT_TRUE(State().complete);
}

TEST_F(ReformingTest, AJobThatBeginsAnewHasItsWholeLastCall) {
  Form({"a", "b"}, MinMax(2, 4));
  Break("a");
  Kill("b", {});
  OpenAndJoin({"a2", "b2"}, MinMax(2, 4));
  Pass(4s, {"a2", "b2"});
  EXPECT_FALSE(State().complete) << "nobody of the last round is there to say who is missing";
  Leave("a2", 1);
  Leave("b2", 1);
  JoinAll({"a2", "b2"});
  Pass(4s, {"a2", "b2"});
  EXPECT_FALSE(State().complete);
}

TEST_F(ReformingTest, SurvivorsThatGiveUpAndOthersThatComeAreAFirstRound) {
  Form({"a", "b"}, MinMax(2, 4));
  Kill("b", {"a"});
  Join("a");
  Leave("a", 1);
  OpenAndJoin({"c", "d"}, MinMax(2, 4));
  Pass(4s, {"a", "c", "d"});
  EXPECT_FALSE(State().complete);
}

// Found by seeds 35022175 and 35055744: the survivors waited for a whole last call. The server was
// late, so the time of the first waiting node was over when the round ended.
TEST_F(ReformingTest, ASurvivorWhoseTimeIsOverDoesNotMakeItAFirstRound) {
  Form({"a", "b", "c", "d"}, MinMax(2, 4));
  Join("a", 1s);
  JoinAll({"b", "c"});
  now_ = now_ + 1001ms;  // and no Tick()
  Leave("d", 0);
  EXPECT_EQ(Kinds("a"), std::vector({Kind::kWaiting, Kind::kTimedOut}));
  EXPECT_EQ(State().round, 1);
  EXPECT_TRUE(State().complete) << "nobody is missing";
  EXPECT_EQ(State().participants.size(), 2u);
}

TEST_F(ReformingTest, AFirstRoundWithAllExpectedNodesHasNoLastCall) {
  RunSettings settings = MinMax(2, 4);
  settings.forming->expected = 3;
  OpenAndJoin({"a", "b"}, settings);
  Pass(4s, {"a", "b"});
  EXPECT_FALSE(State().complete);
  OpenAndJoin({"c"}, settings);
  EXPECT_TRUE(State().complete);
}

TEST_F(ReformingTest, ANodeThatComesBackAloneIsHeldBackUntilTheWindowIsOver) {
  Form({"a", "b", "c", "d"}, MinMax(2, 8));
  Break("c");
  Kill("d", {"a", "b"});
  JoinAll({"a", "b"});
  Pass(501ms, {"a", "b"});
  ASSERT_TRUE(State().complete);
  Heard("a");
  Pass(3s, {"a", "b"});
  OpenAndJoin({"c2"}, MinMax(2, 8));
  EXPECT_THAT(Kinds("c2"), ElementsAre(Kind::kOpened, Kind::kWaiting));
  EXPECT_EQ(Report().held_left, 7s);
  Pass(6999ms, {"a", "b", "c2"});
  EXPECT_THAT(Heard("a"), IsEmpty());
  Pass(1ms, {"a", "b", "c2"});
  EXPECT_THAT(Heard("a"), ElementsAre(Field(&Push::count, 1)));
  EXPECT_EQ(Report().held_left, std::nullopt);
  JoinAll({"a", "b"});
  Pass(501ms, {"a", "b", "c2"});
  EXPECT_EQ(State().participants.size(), 3u);
  EXPECT_TRUE(State().complete);
}

TEST_F(ReformingTest, WhenAsManyWaitAsAreMissingTheyAreAnnouncedTogether) {
  Form({"a", "b", "c", "d"}, MinMax(2, 8));
  Break("c");
  Kill("d", {"a", "b"});
  JoinAll({"a", "b"});
  Pass(501ms, {"a", "b"});
  Heard("a");
  OpenAndJoin({"c2"}, MinMax(2, 8));
  Pass(1s, {"a", "b", "c2"});
  EXPECT_THAT(Heard("a"), IsEmpty());
  OpenAndJoin({"d2"}, MinMax(2, 8));
  EXPECT_THAT(Heard("a"), ElementsAre(Field(&Push::count, 2)));
  JoinAll({"a", "b"});
  Pass(501ms, {"a", "b", "c2", "d2"});
  EXPECT_EQ(State().participants.size(), 4u);
  JoinAll({"a", "b", "c2", "d2"});
  EXPECT_TRUE(State().complete) << "nobody is missing any more";
}

TEST_F(ReformingTest, ThatNobodyWaitsAnyMoreIsAnnouncedAtOnce) {
  Form({"a", "b", "c", "d"}, MinMax(1, 8));
  Kill("d", {"a", "b", "c"});
  JoinAll({"a", "b", "c"});
  Pass(501ms, {"a", "b", "c"});
  OpenAndJoin({"d2"}, MinMax(1, 8));
  Kill("c", {"a", "b", "d2"});  // now two nodes are missing
  Heard("a");
  Leave("d2", 1);
  Pass(100ms, {"a", "b", "d2"});
  EXPECT_THAT(Heard("a"), ElementsAre(Field(&Push::count, 0)));
}

TEST_F(ReformingTest, WhereNobodyIsMissingNobodyIsHeldBack) {
  Form({"a", "b"}, MinMax(2, 4));
  JoinAll({"a", "b"});
  ASSERT_EQ(State().round, 1);
  Pass(200ms, {"a", "b"});
  Heard("a");
  OpenAndJoin({"c"}, MinMax(2, 4));
  EXPECT_THAT(Heard("a"), ElementsAre(Field(&Push::kind, Kind::kNodesWaiting)));
}

TEST_F(ReformingTest, AFirstRoundAnnouncesWaitingNodesAtOnce) {
  Form({"a", "b"}, MinMax(2, 4));
  OpenAndJoin({"c"}, MinMax(2, 4));
  EXPECT_THAT(Heard("a"), ElementsAre(Field(&Push::kind, Kind::kNodesWaiting)));
}

TEST_F(ReformingTest, AMemberThatJoinsAgainIsNotHeldBack) {
  Form({"a", "b", "c"}, MinMax(2, 4));
  JoinAll({"a", "b", "c"});
  ASSERT_EQ(State().round, 1);
  Heard("a");
  Pass(1s, {"a", "b", "c"});
  Join("b");  // its workers failed
  EXPECT_THAT(Heard("a"), Contains(Field(&Push::kind, Kind::kNodesWaiting)));
}

TEST_F(ReformingTest, ALossBringsThoseThatAreHeldBackIn) {
  Form({"a", "b", "c", "d"}, MinMax(1, 8));
  Break("c");
  Kill("d", {"a", "b"});
  JoinAll({"a", "b"});
  Pass(501ms, {"a", "b"});
  Heard("a");
  OpenAndJoin({"e"}, MinMax(1, 8));
  Pass(1s, {"a", "b", "e"});
  EXPECT_THAT(Kinds("a"), IsEmpty());
  Kill("b", {"a", "e"});
  Join("a");
  Pass(501ms, {"a", "e"});
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(State().participants.size(), 2u);
}

TEST_F(ReformingTest, NodesOfAnOlderVersionTakeTheSettingsOfTheOthers) {
  RunSettings older = MinMax(2, 3), newer = MinMax(2, 3);
  older.forming.reset();
  newer.forming->reform_timeout = 700ms;
  Open("a", older);
  Open("b", newer);
  Open("c", older);
  JoinAll({"a", "b", "c"});
  EXPECT_EQ(Report().settings.forming->reform_timeout, 700ms);
  Open("d", MinMax(2, 3));
  const auto told = Heard("d");
  ASSERT_THAT(told, ElementsAre(Field(&Push::kind, Kind::kRefused)));
  EXPECT_THAT(told[0].why, HasSubstr("reform_timeout in ms 500 against 700"));
}

TEST_F(ReformingTest, ARunOfNodesOfAnOlderVersionHasTheWholeLastCall) {
  RunSettings older = MinMax(2, 3);
  older.forming.reset();
  Form({"a", "b", "c"}, older);
  Kill("c", {"a", "b"});
  JoinAll({"a", "b"});
  Pass(4900ms, {"a", "b"});
  EXPECT_FALSE(State().complete);
}

TEST_F(ReformingTest, ANodeOfAnOlderVersionIsAnsweredInItsVersion) {
  Run([&](Pushes& out) {
    coordinator_.Open(
        SessionId{77},
        {.run_id = "run", .node = {"a", 1, 0}, .settings = MinMax(1, 1), .version = 2}, now_, out);
    ASSERT_THAT(out, ElementsAre(Field(&Push::version, 2)));
    out.clear();
    coordinator_.Open(
        SessionId{78},
        {.run_id = "run", .node = {"b", 1, 0}, .settings = MinMax(1, 1), .version = 9}, now_, out);
    ASSERT_THAT(out, ElementsAre(Field(&Push::version, kSessionVersion)));
    out.clear();
  });
}

// A leader that takes over in etcd.
TEST_F(ReformingTest, ARunThatIsResumedReformsAsBefore) {
  RunSettings settings = MinMax(2, 3);
  ResumedRun run{.id = "run", .settings = settings, .round = 4, .world_size = 3};
  for (const char* name : {"a", "b", "c"}) {
    Talker& talker = talkers_[name];
    talker.key = {.session = SessionId{++sessions_}, .round = 4};
    by_session_[sessions_] = name;
    run.members.push_back({.hello = {.run_id = "run", .node = {name, 1, 0}},
                           .rank = static_cast<int64_t>(sessions_) - 1});
    if (name != std::string("c")) run.members.back().session = talker.key.session;
  }
  Run([&](Pushes& out) { coordinator_.ResumeRun(run, now_, out); });
  Pass(1ms, {"a", "b"});  // c is gone
  JoinAll({"a", "b"});
  EXPECT_FALSE(State().complete);
  Pass(501ms, {"a", "b"});
  EXPECT_TRUE(State().complete);
  EXPECT_EQ(State().round, 5);
}

}  // namespace
}  // namespace muster
