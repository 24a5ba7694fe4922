// What nodes may not do at all, any more, or twice: they receive the reason, and no other node
// notices. And the status of runs.
#include <limits>
#include <string>
#include <vector>

#include "support/session_server_test.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Kind = Push::Kind;
using Refusal = Push::Refusal;
using Said = SessionTalker::Said;
using Role = MemberReport::Role;

class SessionRefusalTest : public SessionServerTest {
 protected:
  /// Sends it, and receives that it is out of date.
  static void ExpectPast(SessionTalker& node, const wire::SessionRequest& request,
                         const std::string& why) {
    SCOPED_TRACE(why);
    node.Say(request);
    const Push refused = node.Hear(Kind::kRefused);
    EXPECT_EQ(refused.refusal, Refusal::kPast);
    EXPECT_THAT(refused.why, HasSubstr(why));
    EXPECT_EQ(refused.token, request.token) << "so that the node knows which message it was";
    EXPECT_EQ(refused.incarnation, request.incarnation);
    EXPECT_EQ(refused.round, request.round);
  }

  static constexpr Said kOfASession[] = {Said::kJoin, Said::kLeave, Said::kClose, Said::kKeepAlive};
};
MUSTER_ON_ONE_AND_TWO_LOOPS(SessionRefusalTest);

// --- Outdated messages

TEST_P(SessionRefusalTest, AnotherTokenIsOfThePast) {
  Pair pair = PairInARound();
  for (const Said kind : kOfASession) {
    for (const uint64_t token : {uint64_t{0}, pair.b.token + 1, pair.a.token, ~uint64_t{0}}) {
      wire::SessionRequest request = pair.b.Message(kind);
      request.token = token;
      ExpectPast(pair.b, request, "another session of node '10.0.0.2_4711_0'");
    }
  }
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, AnotherIncarnationIsOfThePast) {
  Pair pair = PairInARound();
  for (const Said kind : kOfASession) {
    for (const uint32_t incarnation : {0u, 2u, 0xffffffffu}) {
      wire::SessionRequest request = pair.b.Message(kind);
      request.incarnation = incarnation;
      ExpectPast(pair.b, request, "before this one was resumed");
    }
  }
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, WhatWasMeantBeforeTheSessionWasTakenUpAgainIsOfThePast) {
  Pair pair = PairInARound();
  const SessionTalker old = std::move(pair.b);
  pair.b = SessionTalker(port());
  pair.b.Open(HelloOf("10.0.0.2", Patient(2, 2)), old.token);
  pair.b.Hear(Kind::kComplete);
  pair.b.Hear(Kind::kNodesWaiting);
  for (const Said kind : kOfASession) ExpectPast(pair.b, old.Message(kind), "before this one");
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, LeavingAnotherRoundIsOfThePast) {
  Pair pair = PairInARound();
  for (const int64_t round : {int64_t{-1}, int64_t{1}, int64_t{1} << 53}) {
    wire::SessionRequest leave = pair.b.Message(Said::kLeave);
    leave.round = round;
    ExpectPast(pair.b, leave, "round " + std::to_string(round) + " is not the present one");
  }
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, AJoinFromANodeThatHasNotReceivedItsRoundDoesNotLeaveIt) {
  Pair pair = PairInARound();
  wire::SessionRequest join = pair.b.Message(Said::kJoin);
  join.round = -1;
  join.join_timeout = 600s;
  ExpectPast(pair.b, join, "is in round 0 already");
  EXPECT_EQ(pair.b.Hear(Kind::kComplete).rank, 1) << "it is notified again";
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, NoMessageIsAcceptedBeforeAnOpen) {
  Pair pair = PairInARound();
  SessionTalker without_session(port());
  for (const Said kind : kOfASession) {
    ExpectPast(without_session, without_session.Message(kind), "session is over");
    ExpectPast(without_session, pair.a.Message(kind), "session is over");
  }
  EXPECT_EQ(without_session.SaidSoFar(), "");
  ExpectUndisturbed(pair);
}

// --- Identities and settings

TEST_P(SessionRefusalTest, TwoNodesCannotBeOne) {
  Pair pair = PairInARound();
  for (const uint64_t resume : {uint64_t{0}, pair.a.token + 1}) {
    SessionTalker second(port());
    second.Introduce(HelloOf("10.0.0.1", Patient(2, 2)), resume);
    const Push refused = second.Hear(Kind::kRefused);
    EXPECT_EQ(refused.refusal, Refusal::kIdentity);
    EXPECT_THAT(refused.why, HasSubstr("'10.0.0.1_4711_0'"));
    EXPECT_EQ(second.SaidSoFar(), "") << "it may stay, and speak to the store";
  }
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, TheSameNodeInTwoRunsIsTwo) {
  Pair pair = PairInARound();
  SessionTalker elsewhere(port(), HelloOf("10.0.0.1", Patient(1, 1), "another run"));
  elsewhere.Join();
  EXPECT_EQ(elsewhere.Hear(Kind::kComplete).world_size, 1);
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, ANodeWithOtherSettingsReceivesBothValuesAndTheOtherNode) {
  Pair pair = PairInARound();
  const auto refused = [&](const RunSettings& settings) {
    SessionTalker node(port());
    node.Introduce(HelloOf("10.0.0.3", settings));
    const Push push = node.Hear(Kind::kRefused);
    EXPECT_EQ(push.refusal, Refusal::kSettings);
    EXPECT_THAT(push.why, AllOf(HasSubstr("'10.0.0.1_4711_0'"), HasSubstr("'10.0.0.3_4711_0'")));
    return push.why;
  };
  RunSettings other = Patient(1, 3);
  EXPECT_THAT(refused(other),
              AllOf(HasSubstr("min_nodes 1 against 2"), HasSubstr("max_nodes 3 against 2")));
  other = Patient(2, 2);
  other.last_call = 31s;
  EXPECT_THAT(refused(other), HasSubstr("last_call in ms 31000 against 30000"));
  other = Patient(2, 2);
  other.keep_alive_interval = 21s;
  EXPECT_THAT(refused(other), HasSubstr("keep_alive_interval in ms 21000 against 20000"));
  other = Patient(2, 2);
  other.keep_alive_max_attempt = 4;
  EXPECT_THAT(refused(other), HasSubstr("keep_alive_max_attempt 4 against 3"));
  other = Patient(2, 2);
  other.grace = 21s;
  EXPECT_THAT(refused(other), HasSubstr("grace in ms 21000 against 20000"));
  other = Patient(2, 2);
  other.policy = RankPolicy::kText;
  EXPECT_THAT(refused(other), HasSubstr("rank policy text against natural"));
  ExpectUndisturbed(pair);
}

TEST_P(SessionRefusalTest, AboveTheServersLimitsThereIsNoPlaceForNow) {
  StoreServerOptions options = Options();
  options.runs_max = 2;
  options.nodes_per_run_max = 2;
  Start(options);
  RunSettings settings = Patient(2, 2);
  settings.grace = 0ms;
  Pair pair = PairInARound(settings);
  SessionTalker second(port(), HelloOf("n", settings, "second"));
  const auto refused = [&](const std::string& run) {
    SessionTalker node(port());
    node.Introduce(HelloOf("late", settings, run));
    const Push push = node.Hear();
    return push.kind == Kind::kRefused && push.refusal == Refusal::kLimit ? push.why : "";
  };
  EXPECT_THAT(refused("third"), HasSubstr("2 runs already"));
  EXPECT_THAT(refused("run"), HasSubstr("2 nodes already"));
  ExpectUndisturbed(pair);
  second.Close();
  EXPECT_TRUE(EventuallyTrue([&] { return refused("third").empty(); })) << "a run has ended";
}

// --- Twice, and after the end

TEST_P(SessionRefusalTest, ASecondOpenOnOneConnectionEndsIt) {
  Pair pair = PairInARound();
  SessionTalker node(port(), HelloOf("10.0.0.3", Patient(2, 2)));
  node.Introduce(HelloOf("10.0.0.4", Patient(2, 2)));
  EXPECT_EQ(node.ReceiveUntilClosed(), "");
  SessionTalker refused(port());
  refused.Introduce(HelloOf("10.0.0.1", Patient(2, 2)));
  refused.Hear(Kind::kRefused);
  refused.Introduce(HelloOf("10.0.0.5", Patient(2, 2)));
  EXPECT_EQ(refused.ReceiveUntilClosed(), "");
  ExpectUndisturbed(pair);
  for (const MemberReport& member : ReportOn("run").members)
    EXPECT_LT(member.node.addr, "10.0.0.4") << "no node uses the second";
}

TEST_P(SessionRefusalTest, LeavingTwiceIsAnsweredTwice) {
  auto [a, b] = PairInARound();
  b.Leave();
  EXPECT_EQ(b.Hear(Kind::kLeft).round, 0);
  b.Leave();
  EXPECT_EQ(b.Hear(Kind::kLeft).round, 0);
  EXPECT_EQ(ReportOn("run").participants, 1);
  a.Leave();
  EXPECT_EQ(a.Hear(Kind::kLeft).round, 0);
  ExpectPast(a, a.Message(Said::kLeave), "round 0 is not the present one of run 'run', which is 1");
}

TEST_P(SessionRefusalTest, JoiningTwiceIsAnsweredTwiceAndCountsOnce) {
  SessionTalker node(port(), HelloOf("n", Patient(2, 2)));
  for (int i = 0; i < 2; ++i) {
    node.Join();
    EXPECT_EQ(node.Hear(Kind::kAdmitted).count, 1);
  }
}

TEST_P(SessionRefusalTest, AfterACloseAllNodesReceiveWhichNodeClosedItAndWhy) {
  auto [a, b] = PairInARound();
  SessionTalker spare(port(), HelloOf("10.0.0.3", Patient(2, 2)));
  spare.Join();
  spare.Hear(Kind::kSpare);
  a.CloseRun("the disk is full");
  for (SessionTalker* node : {&a, &b, &spare}) {
    const Push closed = node->Hear(Kind::kClosed);
    EXPECT_EQ(closed.who, "10.0.0.1_4711_0: the disk is full");
    EXPECT_EQ(closed.graceful, node == &spare);
  }
  b.Join();
  EXPECT_THAT(b.Hear(Kind::kClosed).who, HasSubstr("the disk is full"));
  b.CloseRun("me too");
  EXPECT_THAT(b.Hear(Kind::kClosed).who, HasSubstr("the disk is full")) << "the first reason stays";
  SessionTalker late(port(), HelloOf("10.0.0.4", Patient(1, 7)));
  late.Join();
  EXPECT_EQ(late.Hear(Kind::kClosed).who, "10.0.0.1_4711_0: the disk is full");
  EXPECT_THAT(a.HeardSoFar(), IsEmpty());
}

TEST_P(SessionRefusalTest, WhatAReasonMayNotShowIsShownOtherwise) {
  SessionTalker node(port(), HelloOf("n", Patient(1, 1)));
  node.CloseRun("one\ntwo\x1b[31m" + std::string(4'000, 'x'));
  const Push closed = node.Hear(Kind::kClosed);
  EXPECT_THAT(closed.who, HasSubstr("n_4711_0: one\\x0atwo\\x1b[31mxxx"));
  EXPECT_LT(closed.who.size(), 300u);
}

// --- Status of runs

TEST_P(SessionRefusalTest, AStatusOfAllRunsNamesNoNodes) {
  SessionTalker asker(port());
  EXPECT_THAT(asker.Status(), IsEmpty());
  Pair pair = PairInARound();
  SessionTalker forming(port(), HelloOf("n", Patient(2, 3), "another"));
  forming.Join();
  forming.Hear(Kind::kAdmitted);
  const auto runs = asker.Status("", std::numeric_limits<uint32_t>::max());
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[0].id, "another");
  EXPECT_EQ(runs[0].phase, RunReport::Phase::kForming);
  EXPECT_EQ(runs[0].participants, 1);
  EXPECT_EQ(runs[0].settings, Patient(2, 3));
  EXPECT_THAT(runs[0].members, IsEmpty());
  EXPECT_EQ(runs[1].id, "run");
  EXPECT_EQ(runs[1].phase, RunReport::Phase::kComplete);
  EXPECT_EQ(runs[1].world_size, 2);
  EXPECT_THAT(runs[1].members, IsEmpty());
}

TEST_P(SessionRefusalTest, AStatusOfOneRunNamesItsNodesInOrder) {
  auto [a, b] = PairInARound();
  SessionTalker spare(port(), HelloOf("spare", Patient(2, 2)));
  spare.Join();
  spare.Hear(Kind::kSpare);
  Hello labelled = HelloOf("idle", Patient(2, 2));
  labelled.label = "rack 7";
  const SessionTalker idle(port(), labelled);
  b.Close();
  EXPECT_TRUE(EventuallyTrue([&] { return !ReportOn("run").members.at(1).connected; }));

  const RunReport report = ReportOn("run");
  EXPECT_EQ(report.spares, 1);
  EXPECT_EQ(report.idle, 1);
  ASSERT_THAT(report.members, SizeIs(4));
  EXPECT_EQ(report.members[0].node, (Node{"10.0.0.1", 4711, 0}));
  EXPECT_EQ(report.members[0].rank, 0);
  EXPECT_EQ(report.members[0].role, Role::kParticipant);
  EXPECT_TRUE(report.members[0].connected);
  EXPECT_EQ(report.members[1].rank, 1);
  EXPECT_TRUE(report.members[1].late);
  EXPECT_EQ(report.members[2].role, Role::kSpare);
  EXPECT_EQ(report.members[3].role, Role::kIdle);
  EXPECT_EQ(report.members[3].label, "rack 7");
}

TEST_P(SessionRefusalTest, AStatusOfAnUnknownRunIsEmptyAndMakesNone) {
  SessionTalker asker(port());
  EXPECT_THAT(asker.Status("no such run"), IsEmpty());
  EXPECT_THAT(asker.Status(std::string(4'096, 'x')), IsEmpty());
  EXPECT_THAT(asker.Status(), IsEmpty());
}

TEST_P(SessionRefusalTest, AStatusNamesTheRequestedNumberOfEachRole) {
  Pair pair = PairInARound();
  std::vector<SessionTalker> idle;
  for (int i = 0; i < 5; ++i)
    idle.emplace_back(port(), HelloOf("idle" + std::to_string(i), Patient(2, 2)));
  SessionTalker asker(port());
  const auto named = [&](uint32_t names_max) {
    std::vector<int> count(4);
    const RunReport run = asker.Status("run", names_max).at(0);
    for (const MemberReport& member : run.members) ++count.at(static_cast<size_t>(member.role));
    return count;
  };
  EXPECT_THAT(named(0), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(named(1), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(named(3), ElementsAre(2, 0, 0, 3));
  EXPECT_THAT(named(6), ElementsAre(2, 0, 0, 5));
  EXPECT_THAT(named(7), ElementsAre(2, 0, 0, 5));
  EXPECT_THAT(named(std::numeric_limits<uint32_t>::max()), ElementsAre(2, 0, 0, 5));
  EXPECT_EQ(asker.Status("run", 0).at(0).idle, 5) << "they are counted nevertheless";
}

TEST_P(SessionRefusalTest, AStatusOfALastCallHasTheTimeLeft) {
  SessionTalker node(port(), HelloOf("n", Patient(1, 2)));
  node.Join();
  node.Hear(Kind::kAdmitted);
  const RunReport report = node.Status("run").at(0);
  EXPECT_EQ(report.phase, RunReport::Phase::kLastCall);
  ASSERT_TRUE(report.last_call_left);
  EXPECT_LE(*report.last_call_left, 30s);
  EXPECT_GT(*report.last_call_left, 0s);
}

}  // namespace muster::test
