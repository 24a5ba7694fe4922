#include "rendezvous/document/rendezvous_driver.h"

#include <gtest/gtest.h>

#include "support/fake_cell.h"
#include "support/story.h"

namespace muster {
namespace {

using testing::Complete;
using testing::FakeCell;
using testing::FakeClock;
using testing::MinMax;
using testing::Named;
using testing::Spare;
using testing::Waiting;
using testing::With;

class DriverTest : public ::testing::Test {
 protected:
  explicit DriverTest(RunSettings its_rules = MinMax(1, 3))
      : rules(its_rules),
        document(cell, rules, clock, 1s),
        driver(document, Named("c"), rules, clock, 7,
               {.on_action = [this](Action action,
                                    const RendezvousState&) { actions.push_back(action); },
                .on_write = [this](bool stored) { writes.push_back(stored); }}) {}

  Action Finish(Result<Decision> result) {
    EXPECT_TRUE(result) << result.error().message;
    return result->action;
  }

  FakeClock clock;
  FakeCell cell;
  const RunSettings rules;
  SharedDocument document;
  std::vector<Action> actions;
  std::vector<bool> writes;
  RendezvousDriver driver;
};

TEST_F(DriverTest, Rdzv061TheDecisionIsAboutThisNodeTheLiveStateTheRulesAndTheGivenDeadline) {
  // The stored state is a complete round of two nodes that have been silent for too long. In the
  // live state, from which they are purged, there is a place in the next round.
  const RunSettings two = MinMax(2, 2);
  SharedDocument own(cell, two, clock, 1s);
  RendezvousDriver joining(own, Named("c"), two, clock, 7,
                           {.on_action = [this](Action action, const RendezvousState&) {
                             actions.push_back(action);
                             if (actions.size() > 100)
                               cell.failure = RendezvousConnectionError("changes without end");
                           }});
  cell.Put(Complete(With({"a", "b"})));
  ASSERT_TRUE(own.Sync(SharedDocument::Freshness::kNow));
  for (int look = 0; look < 4; ++look) {
    clock.now = clock.now + two.keep_alive_interval;
    ASSERT_TRUE(own.Sync(SharedDocument::Freshness::kNow));
  }
  ASSERT_EQ(own.shared().participants.size(), 2u);
  ASSERT_EQ(own.state().participants.size(), 0u);

  // Different from the time to join (600 s) and the last call (30 s).
  const Instant deadline = clock.now + 77s;
  std::optional<WaitSnapshot> seen;
  cell.on_get = [&] {
    if (const auto now = joining.Snapshot(); now && clock.now < deadline) seen = *now;
    if (clock.now > deadline + 60s) cell.failure = RendezvousConnectionError("far too late");
  };
  EXPECT_EQ(Finish(joining.Join(deadline)), Action::kErrorTimeout);
  EXPECT_EQ(actions.front(), Action::kAddToParticipants) << "on the live state";
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->deadline, deadline);
  EXPECT_EQ(seen->state.round, 1);
  EXPECT_EQ(seen->state.participants, (std::map<Node, int64_t>{{Named("c"), 0}})) << "own node";
  EXPECT_FALSE(seen->state.complete) << "by the rules, one is not enough";
  EXPECT_GT(clock.now, deadline);
  EXPECT_LE(clock.now, deadline + 1s) << "one look later";

  // With other settings, the decision about the same state differs.
  const RunSettings one = MinMax(1, 1);
  SharedDocument its(cell, one, clock, 1s);
  RendezvousDriver alone(its, Named("c"), one, clock, 7, {});
  EXPECT_EQ(Finish(alone.Join(clock.now + 1s)), Action::kFinish);
  EXPECT_TRUE(cell.state().complete);
}

TEST_F(DriverTest, Rdzv062AChangeIsReadDecidedAndWritten) {
  cell.Put(With({"a", "b"}));
  EXPECT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  EXPECT_EQ(actions, std::vector{Action::kAddToParticipants});
  EXPECT_EQ(cell.gets, 1);
  EXPECT_EQ(cell.sets, 1);
  EXPECT_TRUE(cell.state().complete);
  EXPECT_EQ(cell.state().participants.at(Named("c")), 2);
}

TEST_F(DriverTest, Rdzv063WhatIsDoneIsNotWrittenAgain) {
  cell.Put(Complete(With({"a", "c"})));
  EXPECT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  EXPECT_EQ(cell.gets, 1);
  EXPECT_EQ(cell.sets, 0);
}

TEST_F(DriverTest, Rdzv064ClosedAndTooLateEndAfterOneSyncAndMarkNothing) {
  RendezvousState closed = With({"a"});
  closed.closed = true;
  const auto exactly_one_sync = [&](const RendezvousState& stored, Action error, auto operation) {
    cell.Put(stored);
    clock.now = clock.now + 2s;  // the copy is too old
    const auto [gets, reads, writes_before] =
        std::tuple(cell.gets, document.cost().reads, document.cost().writes);
    EXPECT_EQ(Finish(operation()), error);
    EXPECT_EQ(cell.gets, gets + 1);
    EXPECT_EQ(document.cost().reads, reads + 1);
    EXPECT_EQ(document.cost().writes, writes_before);
    EXPECT_FALSE(document.dirty());
    EXPECT_EQ(document.state(), stored) << "nor changed";
    EXPECT_EQ(cell.sets, 0);
    EXPECT_EQ(cell.state(), stored);
    EXPECT_EQ(actions, std::vector<Action>());
    EXPECT_EQ(writes, std::vector<bool>());
    EXPECT_EQ(clock.slept, std::vector<Duration>()) << "at once";
  };
  {
    SCOPED_TRACE("join, closed");
    exactly_one_sync(closed, Action::kErrorClosed,
                     [&] { return driver.Join(clock.now + rules.join_timeout); });
  }
  {
    SCOPED_TRACE("join, too late");
    exactly_one_sync(With({"a"}), Action::kErrorTimeout,
                     [&] { return driver.Join(clock.now + (-6s)); });
  }
  {
    SCOPED_TRACE("exit, too late");
    exactly_one_sync(With({"c"}), Action::kErrorTimeout,
                     [&] { return driver.Exit(clock.now + (-1ns)); });
  }
}

TEST_F(DriverTest, Rdzv065WhoHasNothingToDoLooksAgainAtMostASecondLaterAndWritesNothing) {
  cell.Put(Waiting(Complete(With({"a"})), "c"));
  int looks = 0;
  cell.on_get = [&] {
    if (++looks == 12) cell.Put(Complete(With({"a", "c"})));
  };
  EXPECT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  ASSERT_FALSE(clock.slept.empty());
  for (const Duration pause : clock.slept) EXPECT_LE(pause, 1s);
  EXPECT_LT(clock.slept.front(), 50ms) << "the first looks come soon";
  EXPECT_GE(clock.slept.size(), 11u) << "and no look comes without a pause";
  for (const bool stored : writes) EXPECT_TRUE(stored);
  EXPECT_LE(cell.sets, 2) << "only heartbeats";
}

TEST_F(DriverTest, Rdzv066AfterALostWriteItLooksAgainAfterAShortPause) {
  cell.Put(With({"a"}));
  cell.before_set = [&] { cell.Put(With({"a", "b"})); };
  EXPECT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  EXPECT_EQ(writes, (std::vector{false, true}));
  EXPECT_EQ(cell.state().participants.size(), 3u) << "the other's change was not overwritten";
  ASSERT_EQ(clock.slept.size(), 1u);
  EXPECT_LE(clock.slept[0], 50ms);
}

TEST_F(DriverTest, AnOptionAllowsALongerPauseAfterALostWrite) {
  RunSettings patient = MinMax(1, 3);
  patient.cas_backoff_max = 30s;
  patient.keep_alive_interval = 60s;
  RendezvousDriver own(document, Named("c"), patient, clock, 7, {});
  cell.Put(With({"a"}));
  cell.before_set = [&] { cell.Put(With({"a", "b"})); };
  EXPECT_EQ(Finish(own.Join(clock.Now() + patient.join_timeout)), Action::kFinish);
  ASSERT_EQ(clock.slept.size(), 1u);
  EXPECT_GT(clock.slept[0], 1s) << "the longest without the option";
  EXPECT_LE(clock.slept[0], 30s);
}

TEST_F(DriverTest, PausesGrowWithTheLossesAndStayBounded) {
  cell.Put(With({}));
  int races = 0;
  std::function<void()> race = [&] {
    RendezvousState state = With({});
    state.round = ++races;
    cell.Put(state);
    if (races < 40) cell.before_set = race;
  };
  cell.before_set = race;
  EXPECT_EQ(Finish(driver.Exit(clock.now + 1s)), Action::kFinish);  // no write: not a participant
  ASSERT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  EXPECT_EQ(driver.Snapshot()->state.round, 40);
  for (const Duration pause : clock.slept) EXPECT_LE(pause, 1s);
}

TEST_F(DriverTest, Rdzv079APlaceForASpareStartsItsTimeAnew) {
  cell.Put(Spare(Complete(With({"a", "b", "d"})), "c"));
  const Instant began = clock.now;
  cell.on_get = [&] {
    RendezvousState state = cell.state();
    if (state.round == 1) return;
    for (const auto& [node, rank] : state.participants) {
      state.last_heartbeats[node] = clock.Wall();  // the other nodes are alive
    }
    if (clock.now > began + 3600s) {  // and leave after an hour
      state = Spare(RendezvousState(), "c");
      state.round = 1;
    }
    cell.Put(state);
  };
  EXPECT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  EXPECT_EQ(actions.front(), Action::kKeepAlive);
  EXPECT_GT(clock.now, began + 3600s) << "though the time to join is ten minutes";
  EXPECT_EQ(cell.state().round, 1);
  EXPECT_TRUE(cell.state().participants.contains(Named("c")));
}

TEST_F(DriverTest, Rdzv094WhoGivesUpIsNoLongerInTheState) {
  const RunSettings three = MinMax(3, 3);
  SharedDocument own(cell, three, clock, 1s);
  RendezvousDriver alone(own, Named("c"), three, clock, 7, {});
  const Instant began = clock.now;
  EXPECT_EQ(Finish(alone.Join(clock.Now() + three.join_timeout)), Action::kErrorTimeout);
  EXPECT_GT(clock.now, began + 600s);
  EXPECT_LT(clock.now, began + 602s);
  EXPECT_EQ(cell.state(), RendezvousState());
  // The snapshot still shows what it waited for.
  EXPECT_TRUE(alone.Snapshot()->state.participants.contains(Named("c")));
}

TEST_F(DriverTest, TheLastCallEndsOnTime) {
  const Instant began = clock.now;
  EXPECT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  EXPECT_GE(clock.now, began + 30s);
  EXPECT_LT(clock.now, began + 30s + 200ms);
  EXPECT_EQ(cell.state().participants.size(), 1u);
}

TEST_F(DriverTest, ClosingLeavesAName) {
  cell.Put(Complete(With({"a", "c"})));
  EXPECT_EQ(Finish(driver.Close("workers failed")), Action::kFinish);
  EXPECT_EQ(cell.state().closed_by, "c_1_0: workers failed");
  EXPECT_EQ(Finish(driver.Close("again")), Action::kFinish);
  EXPECT_EQ(cell.state().closed_by, "c_1_0: workers failed");
}

TEST_F(DriverTest, AMemberTakenForDeadIsBackWithItsRank) {
  cell.Put([] {
    RendezvousState state = Complete(With({"a", "b", "c"}));
    state.participants.erase(Named("c"));
    state.last_heartbeats.erase(Named("c"));
    return state;
  }());
  EXPECT_EQ(Finish(driver.KeepAlive(Place{.round = 0, .rank = 2})), Action::kFinish);
  EXPECT_EQ(cell.state().participants.at(Named("c")), 2);
  EXPECT_TRUE(cell.state().last_heartbeats.contains(Named("c")));
}

TEST_F(DriverTest, WhatOthersWaitForIsAnnouncedOnceItIsStored) {
  cell.Put(With({"a", "b"}));
  EXPECT_EQ(Finish(driver.Join(clock.Now() + rules.join_timeout)), Action::kFinish);
  EXPECT_EQ(cell.announced, (std::vector<std::string>{"0/MUSTER_COMPLETE"}));
  cell.Put(Complete(With({"c"})));
  clock.now = clock.now + 2s;
  EXPECT_EQ(Finish(driver.Exit(clock.now + 1s)), Action::kFinish);
  EXPECT_EQ(cell.announced.back(), "0/MUSTER_OVER");
  EXPECT_EQ(Finish(driver.Close("")), Action::kFinish);
  EXPECT_EQ(cell.announced.size(), 4u);
  EXPECT_EQ(cell.announced[2], "1/MUSTER_COMPLETE");
  EXPECT_EQ(cell.announced[3], "1/MUSTER_OVER");
}

TEST_F(DriverTest, AChangeCountsOnlyOnceItIsStored) {
  cell.Put(Complete(With({"a", "c"})));
  ASSERT_EQ(Finish(driver.Exit(clock.now + 1s)), Action::kFinish);
  cell.forgets = true;
  cell.before_set = [&] { cell.bytes.reset(); };
  const Instant began = clock.now;
  EXPECT_EQ(Finish(driver.Close("")), Action::kErrorTimeout) << "nothing that is written stays";
  EXPECT_GE(clock.now, began + 30s);
  cell.forgets = false;
  EXPECT_EQ(Finish(driver.Close("")), Action::kFinish);
  EXPECT_TRUE(cell.state().closed);
}

TEST_F(DriverTest, BackendErrorsEndTheOperation) {
  cell.failure = RendezvousConnectionError("gone");
  const Result<Decision> result = driver.Join(clock.Now() + rules.join_timeout);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace muster
