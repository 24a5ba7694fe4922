// A run is never mixed with another run of the same name: generations, scopes of the store, closed
// runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/limits.h"
#include "rendezvous/core/closed_runs.h"
#include "rendezvous/core/coordinator.h"
#include "support/coordinator_test.h"

namespace muster {
namespace {

using Kind = Push::Kind;
using test::CoordinatorTest;
using test::MinMax;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GenerationsTest : public CoordinatorTest {
 protected:
  GenerationsTest() : CoordinatorTest({.ended_kept = 10s, .has_store = true}) {}

  /// Nodes of a job: they meet in a round, and then their connections end.
  Push Job(const std::string& a, const std::string& b, bool closes = false) {
    OpenAndJoin({a, b}, MinMax(2, 2));
    const Push assignment = Heard(a).back();
    EXPECT_EQ(assignment.kind, Kind::kComplete);
    if (closes) Close(a, "done");
    Break(a);
    Break(b);
    Pass(1s, {});
    return assignment;
  }
  std::vector<std::string> Changes() {
    std::vector<std::string> changes;
    for (const ScopeChange& change : coordinator_.TakeScopeChanges()) {
      changes.push_back((change.in_use ? "uses " : "leaves ") + std::to_string(change.round));
      generations_.insert(change.generation.ToString());
    }
    return changes;
  }

  std::set<std::string> generations_;
};

TEST_F(GenerationsTest, AllMembersOfARoundHaveTheSame) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  EXPECT_EQ(Heard("a").back().generation, Heard("b").back().generation);
}

TEST_F(GenerationsTest, ARunThatWasForgottenComesBackAsAnother) {
  const Push first = Job("a", "b");
  Pass(11s, {});
  ASSERT_EQ(coordinator_.Find("run"), nullptr);
  talkers_.clear();
  const Push second = Job("c", "d");
  EXPECT_EQ(second.round, first.round) << "this is what mixed them up";
  EXPECT_EQ(second.generation.server, first.generation.server);
  EXPECT_NE(second.generation.run, first.generation.run);
  EXPECT_NE(RoundPrefix(second.generation, second.round),
            RoundPrefix(first.generation, first.round));
}

TEST_F(GenerationsTest, ARunThatIsRememberedGoesOnInItsNextRound) {
  const Push first = Job("a", "b");
  talkers_.clear();
  const Push second = Job("c", "d");
  EXPECT_EQ(second.generation, first.generation);
  EXPECT_GT(second.round, first.round);
}

TEST_F(GenerationsTest, ANewNodeBeginsAnotherRunOnceNoNodeOfTheClosedOneIsConnected) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  const Push first = Heard("a").back();
  Close("a", "done");
  OpenAndJoin({"early"}, MinMax(2, 2));
  EXPECT_EQ(Heard("early").back().kind, Kind::kClosed) << "nodes of the closed run are here";
  for (const char* name : {"a", "b", "early"}) End(name);
  OpenAndJoin({"c", "d"}, MinMax(1, 2));  // while the grace of the others is running
  const Push second = Heard("c").back();
  EXPECT_EQ(second.kind, Kind::kComplete);
  EXPECT_NE(second.generation.run, first.generation.run);
  EXPECT_EQ(second.round, 0);
  Pass(20s, {"c", "d"});
  EXPECT_EQ(State().participants.size(), 2u);
  EXPECT_FALSE(State().closed);
}

TEST_F(GenerationsTest, ANodeOfAClosedRunIsNotifiedOfItAlsoWhileAnotherOneRuns) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  std::vector<uint64_t> tokens{talkers_["b"].key.token};
  Break("b");
  Pass(2s, {"a"});  // b is lost, and does not receive the end
  Close("a", "done");
  Break("a");
  Pass(2s, {});
  Open("b", MinMax(2, 2), tokens[0]);
  EXPECT_TRUE(State().closed) << "no node was left, and this one is not new";
  tokens.push_back(talkers_["b"].key.token);
  Break("b");
  OpenAndJoin({"c", "d"}, MinMax(2, 2));
  for (const uint64_t token : tokens) {
    Open("b", MinMax(2, 2), token);
    Join("b");
    EXPECT_EQ(Heard("b").back().kind, Kind::kClosed);
    Break("b");
    Pass(2s, {"c", "d"});
  }
  EXPECT_EQ(State().participants.size(), 2u);
  EXPECT_EQ(coordinator_.Reports("", 10, now_).size(), 1u) << "the present one";
  Pass(20s, {"c", "d"});
  Open("b", MinMax(2, 2), tokens[0]);
  Join("b");
  EXPECT_EQ(Heard("b").back().kind, Kind::kSpare) << "the closed one is forgotten";
}

TEST_F(GenerationsTest, AnotherServerHasAnother) {
  uint64_t drawn = 100;
  const auto entropy = [&drawn] { return ++drawn; };
  std::set<uint64_t> servers;
  for (int life = 0; life < 3; ++life) {
    Coordinator server({.entropy = entropy});
    Pushes out;
    const Hello hello{.run_id = "run", .node = {"a", 1, 0}, .settings = MinMax(1, 1)};
    server.Open(SessionId{1}, hello, now_, out);
    server.Join({.session = SessionId{1}, .token = out[0].token, .incarnation = 1}, 1s, now_, out);
    servers.insert(out.back().generation.server);
  }
  EXPECT_EQ(servers.size(), 3u);
}

TEST_F(GenerationsTest, TheLastTwoRoundsKeepTheirKeysAndARunWithoutNodesNone) {
  OpenAndJoin({"a", "b"}, MinMax(2, 2));
  EXPECT_THAT(Changes(), ElementsAre("uses 0"));
  for (const std::string name : {"a", "b"}) Join(name);
  EXPECT_THAT(Changes(), ElementsAre("uses 1"));
  for (const std::string name : {"a", "b"}) Join(name);
  EXPECT_THAT(Changes(), ElementsAre("uses 2", "leaves 0"));
  Break("a");
  Pass(2s, {"b"});
  EXPECT_THAT(Changes(), IsEmpty());
  Break("b");
  Pass(2s, {});
  EXPECT_THAT(Changes(), ElementsAre("leaves 1", "leaves 2")) << "nobody is left to read them";
  Pass(20s, {});
  EXPECT_THAT(Changes(), IsEmpty());
  EXPECT_EQ(generations_.size(), 1u);
}

TEST_F(GenerationsTest, AForgedRoundLocksNobodyOut) {
  OpenAndJoin({"a"}, MinMax(2, 2));
  talkers_["forger"].key.round = int64_t{1} << 53;
  OpenAndJoin({"forger"}, MinMax(2, 2));
  EXPECT_EQ(Heard("a").back().round, kClaimedRoundMax);
  // Its connection breaks, and it reconnects with the round that it has received.
  Break("a");
  Pass(2s, {"forger"});
  Open("a", MinMax(2, 2));
  EXPECT_EQ(Heard("a").back().kind, Kind::kOpened);
  Join("a");
  Join("forger");
  EXPECT_EQ(Heard("a").back().round, kClaimedRoundMax + 1);
}

TEST(ClosedRunsTest, AFloodOfNewRunsDoesNotOpenAClosedOne) {
  Coordinator small({.runs_max = 3, .ended_kept = 600s});
  Instant now{100s};
  uint64_t sessions = 0;
  const auto open = [&](const std::string& run_id, uint64_t resume = 0) {
    Pushes out;
    const SessionId session{++sessions};
    const Hello hello{
        .run_id = run_id, .node = {"a", 1, 0}, .settings = MinMax(1, 1), .resume = resume};
    small.Open(session, hello, now, out);
    Push opened = out.at(0);
    small.Join({.session = session, .token = opened.token, .incarnation = 1}, 1s, now, out);
    opened.kind = out.back().kind;
    opened.who = out.back().who;
    return opened;
  };
  const auto end = [&] {
    Pushes out;
    small.Disconnect(SessionId{sessions}, now);
    now = now + 1s;
    small.Tick(now, out);
  };
  const Push opened = open("closed");
  Pushes out;
  const SessionKey key{.session = SessionId{sessions}, .token = opened.token, .incarnation = 1};
  small.Close(key, "done", now, out);
  end();
  for (int i = 0; i < 100; ++i) {
    open("flood" + std::to_string(i));
    end();
  }
  ASSERT_EQ(small.Find("closed"), nullptr) << "it has been evicted";
  for (int i = 0; i < 2; ++i) {
    const Push again = open("closed", opened.token);
    EXPECT_EQ(again.kind, Kind::kClosed);
    EXPECT_FALSE(again.who.empty());
    end();
    EXPECT_EQ(open("closed").kind, Kind::kComplete) << "a new node begins another run";
    end();
  }
  now = now + 1200s;
  small.Tick(now, out);
  EXPECT_EQ(open("closed", opened.token).kind, Kind::kComplete) << "its time is over";
}

TEST(ClosedRunsTest, ItHasALimitAndForgetsNothingEarly) {
  ClosedRuns runs({1, 2}, 100);
  const Instant now{1s};
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(runs.HasRoom(now));
    runs.Add(std::to_string(i), now + 600s, now);
  }
  EXPECT_FALSE(runs.HasRoom(now));
  EXPECT_TRUE(runs.Contains("0", now));
  EXPECT_TRUE(runs.Contains("99", now));
  EXPECT_FALSE(runs.Contains("another", now));
  EXPECT_TRUE(runs.HasRoom(now + 600s));
  EXPECT_FALSE(runs.Contains("99", now + 600s));
  EXPECT_EQ(runs.size(), 0u);
}

TEST(ClosedRunsTest, WhereNoMoreNamesFitANewRunIsRefusedAndNoClosedOneOpens) {
  Coordinator small({.runs_max = 3, .ended_max = 2, .closed_runs_max = 5, .ended_kept = 600s});
  Instant now{100s};
  uint64_t sessions = 0;
  // Opens the run, closes it if `closes`, and disconnects.
  const auto visit = [&](const std::string& run_id, bool closes) {
    Pushes out;
    const SessionId session{++sessions};
    small.Open(session, {.run_id = run_id, .node = {"a", 1, 0}, .settings = MinMax(1, 1)}, now,
               out);
    const Push answer = out.at(0);
    if (closes && answer.kind == Kind::kOpened)
      small.Close({.session = session, .token = answer.token, .incarnation = 1}, "done", now, out);
    small.Disconnect(session, now);
    now = now + 1s;
    small.Tick(now, out);
    return answer;
  };
  size_t closed = 0;
  while (visit("closed" + std::to_string(closed), true).kind == Kind::kOpened) ++closed;
  EXPECT_EQ(closed, 3u + 5u);
  const Push refused = visit("new", false);
  EXPECT_EQ(refused.refusal, Push::Refusal::kLimit);
  EXPECT_THAT(refused.why, HasSubstr("closed runs"));
  size_t known = 0;
  for (size_t i = 0; i < closed; ++i) {
    const Coordinator::Run* run = small.Find("closed" + std::to_string(i));
    if (run == nullptr) continue;
    ++known;
    EXPECT_TRUE(run->state.closed);
  }
  EXPECT_EQ(known, 3u);
  now = now + 700s;
  Pushes out;
  small.Tick(now, out);
  EXPECT_EQ(visit("new", false).kind, Kind::kOpened) << "the time of all of them is over";
}

TEST(StatusPagesTest, RunsComeInTheOrderOfTheirNamesAPageAtATime) {
  Coordinator coordinator;
  Pushes out;
  for (uint64_t i = 0; i < 25; ++i) {
    coordinator.Open(SessionId{i},
                     {.run_id = std::string(1, static_cast<char>('a' + i)),
                      .node = {"n", 1, 0},
                      .settings = MinMax(1, 1)},
                     Instant{1s}, out);
  }
  std::string seen;
  std::string after;
  while (true) {
    const auto page = coordinator.Reports(after, 10, Instant{1s});
    if (page.empty()) break;
    for (const RunReport& run : page) seen += run.id;
    after = page.back().id;
  }
  EXPECT_EQ(seen, "abcdefghijklmnopqrstuvwxy");
}

}  // namespace
}  // namespace muster
