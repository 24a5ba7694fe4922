// Which nodes are missing, in one sentence.
#include "rendezvous/wait_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/story.h"

namespace muster::test {

using testing::Complete;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kStart;
using testing::MinMax;
using testing::Named;
using testing::Spare;
using testing::Waiting;
using testing::With;
using Phase = WaitReport::Phase;

namespace {

WaitReport Report(RendezvousState state, const RunSettings& rules, const char* self = "a") {
  const WaitSnapshot snapshot{.state = std::move(state),
                              .quiet = {},
                              .last_call_ends = std::nullopt,
                              .deadline = kStart + 588s};
  return ReportOn(snapshot, Named(self), "run", rules, kStart);
}

}  // namespace

TEST(WaitReportTest, BeforeAnything) {
  EXPECT_EQ(WaitReport().phase, Phase::kIdle);
  EXPECT_EQ(WaitReport().ToString(), "not waiting for anybody");
}

TEST(WaitReportTest, TooFewNodes) {
  const WaitReport report = Report(With({"a", "b", "c"}), MinMax(4, 4));
  EXPECT_EQ(report.phase, Phase::kForming);
  EXPECT_EQ(report.awaited, 1);
  EXPECT_EQ(report.min_nodes, 4);
  EXPECT_EQ(report.run_id, "run");
  EXPECT_THAT(report.joined, ElementsAre("a_1_0", "b_1_0", "c_1_0"));
  EXPECT_EQ(report.ToString(),
            "round 0: 3 of 4 nodes are here (a_1_0, b_1_0, c_1_0), 1 more is needed; gives up in "
            "588 s");
}

TEST(WaitReportTest, NoNodeYet) {
  EXPECT_EQ(Report(With({}), MinMax(2, 4)).ToString(),
            "round 0: 0 of 4 nodes are here, 2 more are needed; gives up in 588 s");
  EXPECT_EQ(Report(With({}), MinMax(1, 1)).ToString(),
            "round 0: 0 of 1 node is here, 1 more is needed; gives up in 588 s");
}

TEST(WaitReportTest, ManyNamesAreCutShort) {
  EXPECT_EQ(
      Report(With({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}), MinMax(20, 20)).ToString(),
      "round 0: 10 of 20 nodes are here (a_1_0, b_1_0, c_1_0, d_1_0, e_1_0, f_1_0, g_1_0, "
      "h_1_0 and 2 more), 10 more are needed; gives up in 588 s");
}

TEST(WaitReportTest, ASilentNodeIsNamed) {
  WaitReport report = Report(With({"a", "b"}), MinMax(3, 3));
  report.silent = {"b_1_0"};
  report.time_left.reset();
  EXPECT_EQ(report.ToString(),
            "round 0: 2 of 3 nodes are here (a_1_0, b_1_0), 1 more is needed; not heard of lately: "
            "b_1_0");
}

TEST(WaitReportTest, TheQuietOfTheSnapshotAreTheSilentOfTheReport) {
  const WaitSnapshot snapshot{.state = With({"a", "b"}),
                              .quiet = {Named("b")},
                              .last_call_ends = std::nullopt,
                              .deadline = Instant::Never()};
  const WaitReport report = ReportOn(snapshot, Named("a"), "run", MinMax(3, 3), kStart);
  EXPECT_THAT(report.silent, ElementsAre("b_1_0"));
  EXPECT_EQ(report.time_left, std::nullopt);
}

TEST(WaitReportTest, TheLastCall) {
  RendezvousState state = With({"a", "b"});
  state.round = 3;
  state.deadline = testing::kNoon;
  const WaitSnapshot snapshot{
      .state = state, .quiet = {}, .last_call_ends = kStart + 11s + 1ms, .deadline = kStart + 90s};
  const WaitReport report = ReportOn(snapshot, Named("a"), "run", MinMax(2, 4), kStart);
  EXPECT_EQ(report.phase, Phase::kLastCall);
  EXPECT_EQ(report.awaited, 0);
  EXPECT_EQ(report.last_call_left, 11'001ms);
  EXPECT_EQ(report.ToString(),
            "round 3: 2 of 4 nodes are here (a_1_0, b_1_0), enough to start; last call for the "
            "others: starts in 12 s; gives up in 90 s");
  // After its end it is simply over.
  EXPECT_EQ(ReportOn(snapshot, Named("a"), "run", MinMax(2, 4), kStart + 20s).last_call_left, 0ms);
}

TEST(WaitReportTest, CameLate) {
  RendezvousState state = Waiting(Complete(With({"b", "c"})), "a");
  const WaitReport report = Report(state, MinMax(2, 3));
  EXPECT_EQ(report.phase, Phase::kNextRound);
  EXPECT_EQ(report.awaited, 2);
  EXPECT_THAT(report.waiting, ElementsAre("a_1_0"));
  EXPECT_EQ(report.ToString(),
            "waiting for the next round: 2 nodes are still in round 0 (b_1_0, c_1_0); gives up in "
            "588 s");
  EXPECT_EQ(Report(Waiting(Complete(With({"b"})), "a"), MinMax(1, 3)).ToString(),
            "waiting for the next round: 1 node is still in round 0 (b_1_0); gives up in 588 s");
}

TEST(WaitReportTest, HeldBack) {
  WaitReport report = Report(Waiting(Complete(With({"b"})), "a"), MinMax(1, 3));
  report.held_left = 6001ms;
  report.held_for = 3s;
  EXPECT_EQ(
      report.ToString(),
      "waiting for the next round: 1 node is still in round 0 (b_1_0); held back for up to 7 s "
      "more: the round re-formed 3 s ago; gives up in 588 s");
}

TEST(WaitReportTest, ASpareWaitsWithoutLimit) {
  const WaitReport report = Report(Spare(Complete(With({"b", "c"})), "a"), MinMax(2, 2));
  EXPECT_EQ(report.phase, Phase::kSpare);
  EXPECT_EQ(report.time_left, std::nullopt);
  EXPECT_THAT(report.spares, ElementsAre("a_1_0"));
  EXPECT_THAT(report.waiting, IsEmpty());
  EXPECT_EQ(report.ToString(),
            "a spare: round 0 is full with 2 nodes; waits without limit for one of them to leave");
}

TEST(WaitReportTest, InARound) {
  const WaitReport report = Report(Complete(With({"a", "b"})), MinMax(2, 2));
  EXPECT_EQ(report.phase, Phase::kComplete);
  EXPECT_EQ(report.awaited, 0);
  EXPECT_EQ(report.ToString(), "in round 0 with 2 nodes");
}

TEST(WaitReportTest, WaitingForRank0) {
  WaitReport report = Report(Complete(With({"a", "b"})), MinMax(2, 2), "b");
  report.phase = Phase::kBootstrap;
  report.first = "a_1_0";
  report.time_left.reset();
  EXPECT_EQ(report.ToString(),
            "round 0: complete with 2 nodes; waiting for rank 0 (a_1_0) to say where its store is");
}

TEST(WaitReportTest, Closed) {
  for (RendezvousState state : {With({"a"}), Complete(With({"a"})), Spare(With({"b"}), "a")}) {
    state.closed = true;
    const WaitReport report = Report(state, MinMax(1, 2));
    EXPECT_EQ(report.phase, Phase::kClosed);
    EXPECT_EQ(report.ToString(), "the rendezvous 'run' is closed");
  }
}

TEST(WaitReportTest, NamesOfOthersStayOnTheLine) {
  WaitReport report = Report(With({"a", "b\n\x1b[2J"}), MinMax(3, 3));
  report.silent = {"\x1b]52;c;x\x07"};
  EXPECT_EQ(
      report.ToString(),
      "round 0: 2 of 3 nodes are here (a_1_0, b\\x0a\\x1b[2J_1_0), 1 more is needed; not heard "
      "of lately: \\x1b]52;c;x\\x07; gives up in 588 s");
  report.phase = Phase::kContact;
  report.trouble = "says \x1b[2J";
  EXPECT_THAT(report.ToString(), ::testing::HasSubstr(": says \\x1b[2J"));
  const MembershipEvent lost{.kind = MembershipEvent::Kind::kMemberLost,
                             .who = "a\x1b[2J",
                             .why = "said\nmuster: all is well"};
  EXPECT_EQ(lost.ToString(), "round 0 has lost a\\x1b[2J: said\\x0amuster: all is well");
}

TEST(WaitReportTest, TimeIsRoundedUpAndNeverNegative) {
  WaitReport report = Report(With({"a"}), MinMax(2, 2));
  for (const auto& [left, text] : {std::pair{1ms, "gives up in 1 s"},
                                   {1000ms, "gives up in 1 s"},
                                   {1001ms, "gives up in 2 s"},
                                   {0ms, "gives up in 0 s"},
                                   {-5000ms, "gives up in 0 s"}}) {
    report.time_left = left;
    EXPECT_TRUE(report.ToString().ends_with(text)) << report.ToString();
  }
}

}  // namespace muster::test
