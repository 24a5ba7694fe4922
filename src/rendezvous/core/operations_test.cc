#include "rendezvous/core/operations.h"

#include <gtest/gtest.h>

#include "support/story.h"

namespace muster {
namespace {

using testing::Complete;
using testing::kNoon;
using testing::kStart;
using testing::MinMax;
using testing::Named;
using testing::Spare;
using testing::View;
using testing::Waiting;
using testing::With;

RendezvousState Closed(RendezvousState state) {
  state.closed = true;
  return state;
}

RendezvousState LastCall(RendezvousState state) {
  state.deadline = kNoon + 30s;
  return state;
}

// --- Exit, close, keep-alive ---

TEST(ExitTest, Rdzv081NotAParticipantIsDoneEvenWhenClosed) {
  EXPECT_EQ((View{With({"b"}), MinMax(1, 2)}.At(0s, DecideExit)), Action::kFinish);
  EXPECT_EQ((View{Closed(With({"b"})), MinMax(1, 2)}.At(0s, DecideExit)), Action::kFinish);
  EXPECT_EQ((View{Waiting(With({"b"}), "a"), MinMax(1, 2)}.At(200s, DecideExit)), Action::kFinish);
}

TEST(ExitTest, Rdzv082AParticipantLeavesInTimeAndTimesOutLater) {
  const View view{Complete(With({"a", "b"})), MinMax(1, 2)};
  EXPECT_EQ(view.At(100s, DecideExit), Action::kRemoveFromParticipants);
  EXPECT_EQ(view.At(100s + 1ns, DecideExit), Action::kErrorTimeout);
}

TEST(GiveUpTest, ANodeGoesFromWhereverItIs) {
  const auto at = [](RendezvousState state, Duration time) {
    return View{std::move(state), MinMax(1, 2)}.At(time, DecideGiveUp);
  };
  EXPECT_EQ(at(With({"b"}), 0s), Action::kFinish);
  EXPECT_EQ(at(With({"a", "b"}), 0s), Action::kRemoveFromParticipants);
  EXPECT_EQ(at(Complete(With({"a", "b"})), 0s), Action::kRemoveFromParticipants);
  EXPECT_EQ(at(Waiting(Complete(With({"b"})), "a"), 0s), Action::kRemoveFromWaitList);
  EXPECT_EQ(at(Spare(Complete(With({"b", "c"})), "a"), 0s), Action::kRemoveFromRedundancyList);
  EXPECT_EQ(at(With({"a", "b"}), 100s + 1ns), Action::kErrorTimeout);
}

TEST(CloseTest, Rdzv083ClosesOnceAndInTime) {
  const View open{With({"a"}), MinMax(1, 2)};
  const View closed{Closed(With({"a"})), MinMax(1, 2)};
  EXPECT_EQ(closed.At(200s, DecideClose), Action::kFinish);
  EXPECT_EQ(open.At(100s, DecideClose), Action::kMarkClosed);
  EXPECT_EQ(open.At(101s, DecideClose), Action::kErrorTimeout);
}

TEST(KeepAliveTest, Rdzv084IsDueExactlyAtTheInterval) {
  const View view{With({"a"}), MinMax(1, 2)};
  EXPECT_EQ(view.At(4s, DecideKeepAlive), Action::kFinish);
  EXPECT_EQ(view.At(5s, DecideKeepAlive), Action::kKeepAlive);
  EXPECT_EQ(view.At(6s, DecideKeepAlive), Action::kKeepAlive);
}

TEST(KeepAliveTest, Rdzv085DueButTooLateIsATimeout) {
  const View view{With({"a"}), MinMax(1, 2)};
  EXPECT_EQ(view.At(101s, DecideKeepAlive), Action::kErrorTimeout);
}

TEST(KeepAliveTest, Rdzv086WithoutAHeartbeatNothingIsWritten) {
  RendezvousState state = With({"a", "b"});
  state.last_heartbeats.erase(Named("a"));
  EXPECT_EQ((View{state, MinMax(1, 2)}.At(60s, DecideKeepAlive)), Action::kFinish);
}

TEST(KeepAliveTest, AMemberTakenForDeadComesBackToItsRoundOnly) {
  const Place place{.round = 3, .rank = 1};
  RendezvousState state = Complete(With({"b"}));
  state.round = 3;
  const auto decide = [&](const RendezvousState& seen) {
    return View{seen, MinMax(1, 2), Named("a"), place}.At(0s, DecideKeepAlive);
  };
  EXPECT_EQ(decide(state), Action::kRestore);
  EXPECT_FALSE(LeftBehind(state, Named("a"), place));
  {
    RendezvousState taken = state;  // another node has its rank now
    taken.participants.begin()->second = place.rank;
    EXPECT_EQ(decide(taken), Action::kFinish);
    EXPECT_TRUE(LeftBehind(taken, Named("a"), place));
    ++taken.round;
    EXPECT_TRUE(LeftBehind(taken, Named("a"), place));
  }
  EXPECT_EQ(decide(Closed(state)), Action::kFinish);
  RendezvousState full = Complete(With({"b", "c"}));
  full.round = 3;
  EXPECT_EQ(decide(full), Action::kFinish);
  state.round = 4;
  EXPECT_EQ(decide(state), Action::kFinish);
  state.complete = false;
  EXPECT_EQ(decide(state), Action::kFinish);
}

// --- Join, row by row ---

TEST(JoinTest, Rdzv087J1ClosedAndSpareGoesInPeace) {
  EXPECT_EQ((View{Closed(Spare(Complete(With({"b"})), "a")), MinMax(1, 1)}.Join()),
            Action::kErrorGraceful);
}

TEST(JoinTest, Rdzv088J2ClosedIsAnErrorEvenForAMember) {
  EXPECT_EQ((View{Closed(With({})), MinMax(1, 2)}.Join()), Action::kErrorClosed);
  EXPECT_EQ((View{Closed(Complete(With({"a", "b"}))), MinMax(1, 2)}.Join()), Action::kErrorClosed);
}

TEST(JoinTest, Rdzv089J3J4ASpareOfAFullRoundStaysAliveWithoutLimit) {
  const View view{Spare(Complete(With({"b", "c"})), "a"), MinMax(1, 2)};
  EXPECT_EQ(view.Join(1s), Action::kSync);
  EXPECT_EQ(view.Join(5s), Action::kKeepAlive);
  EXPECT_EQ(view.Join(5000s), Action::kKeepAlive);
}

TEST(JoinTest, Rdzv090J5ASpareLeavesTheListWhenAPlaceIsFree) {
  EXPECT_EQ((View{Spare(Complete(With({"b"})), "a"), MinMax(1, 2)}.Join()),
            Action::kRemoveFromRedundancyList);
  // With more members than allowed there is no place either: otherwise the spare would leave and
  // return without end.
  EXPECT_EQ((View{Spare(Complete(With({"b", "c", "d"})), "a"), MinMax(1, 2)}.Join()),
            Action::kSync);
}

TEST(JoinTest, Rdzv091J6AMemberOfACompleteRoundIsDoneEvenLate) {
  const View view{Complete(With({"a", "b"})), MinMax(1, 2)};
  EXPECT_EQ(view.Join(), Action::kFinish);
  EXPECT_EQ(view.Join(500s), Action::kFinish);
}

TEST(JoinTest, Rdzv092J7J8WhoIsLateTakesItselfOutForFiveSeconds) {
  const View member{With({"a", "b"}), MinMax(3, 3)};
  EXPECT_EQ(member.Join(100s + 1ms), Action::kRemoveFromParticipants);
  EXPECT_EQ(member.Join(105s), Action::kRemoveFromParticipants);
  const View waiter{Waiting(Complete(With({"b"})), "a"), MinMax(1, 2)};
  EXPECT_EQ(waiter.Join(101s), Action::kRemoveFromWaitList);
  EXPECT_EQ(waiter.Join(105s), Action::kRemoveFromWaitList);
}

TEST(JoinTest, Rdzv093J9LaterOrNowhereIsATimeout) {
  EXPECT_EQ((View{With({"b"}), MinMax(3, 3)}.Join(101s)), Action::kErrorTimeout);
  EXPECT_EQ((View{With({"a", "b"}), MinMax(3, 3)}.Join(105s + 1ms)), Action::kErrorTimeout);
  EXPECT_EQ((View{Waiting(Complete(With({"b"})), "a"), MinMax(1, 2)}.Join(106s)),
            Action::kErrorTimeout);
}

TEST(JoinTest, Rdzv095J10CompleteWithRoomMeansTheWaitListOnce) {
  EXPECT_EQ((View{Complete(With({"b"})), MinMax(1, 2)}.Join()), Action::kAddToWaitList);
  EXPECT_EQ((View{Waiting(Complete(With({"b"})), "a"), MinMax(1, 2)}.Join()), Action::kSync);
}

TEST(JoinTest, Rdzv096J11CompleteAndFullMeansSpare) {
  EXPECT_EQ((View{Complete(With({"b", "c"})), MinMax(1, 2)}.Join()), Action::kAddToRedundancyList);
}

TEST(JoinTest, Rdzv097AWaiterOfAFullRoundStaysOne) {
  EXPECT_EQ((View{Waiting(Complete(With({"b", "c"})), "a"), MinMax(1, 2)}.Join()), Action::kSync);
}

TEST(JoinTest, Rdzv098J12J16J17AWaiterKeepsAliveWhenDue) {
  const View view{Waiting(Complete(With({"b"})), "a"), MinMax(1, 2)};
  EXPECT_EQ(view.Join(4s), Action::kSync);
  EXPECT_EQ(view.Join(5s), Action::kKeepAlive);
}

TEST(JoinTest, Rdzv099J13AMemberCompletesTheRoundAfterTheLastCall) {
  const View view{LastCall(With({"a", "b"})), MinMax(2, 4)};
  EXPECT_EQ(view.Join(30s + 1ms), Action::kMarkComplete);
}

TEST(JoinTest, Rdzv100J14NotAtTheVeryInstant) {
  const View view{LastCall(With({"a", "b"})), MinMax(2, 4)};
  EXPECT_EQ(view.Join(4s), Action::kSync);
  EXPECT_EQ(view.Join(30s), Action::kKeepAlive) << "a heartbeat is due, but nothing more";
}

TEST(JoinTest, Rdzv101NoLastCallTooFewOrTooManyDoNotComplete) {
  EXPECT_NE((View{With({"a", "b"}), MinMax(2, 4)}.Join(40s)), Action::kMarkComplete);
  EXPECT_NE((View{LastCall(With({"a"})), MinMax(2, 4)}.Join(40s)), Action::kMarkComplete);
  EXPECT_NE((View{LastCall(With({"a", "b", "c"})), MinMax(1, 2)}.Join(40s)), Action::kMarkComplete);
}

TEST(JoinTest, Rdzv102J15AnOpenRoundIsJoined) {
  EXPECT_EQ((View{With({}), MinMax(1, 2)}.Join()), Action::kAddToParticipants);
  EXPECT_EQ((View{Waiting(With({"b"}), "a"), MinMax(1, 2)}.Join()), Action::kAddToParticipants);
}

TEST(JoinTest, Rdzv103TooLateBeatsThePassedLastCall) {
  EXPECT_EQ((View{LastCall(With({"a", "b"})), MinMax(2, 4)}.Join(101s)),
            Action::kRemoveFromParticipants);
}

TEST(JoinTest, WhoWaitsSaysWhenTheClockMatters) {
  Observation observed;
  const RendezvousState state = LastCall(With({"a", "b"}));
  observed.See(state, kStart);
  const RunSettings rules = MinMax(2, 4);
  const Node self = Named("a");
  const auto wake = [&](Instant now, Instant deadline) {
    return DecideJoin({.state = state,
                       .observed = observed,
                       .self = self,
                       .settings = rules,
                       .now = now,
                       .deadline = deadline})
        .wake_at;
  };
  EXPECT_EQ(wake(kStart, kStart + 100s), kStart + 5s) << "its heartbeat";
  EXPECT_EQ(wake(kStart, kStart + 3s), kStart + 3s) << "its deadline";
}

}  // namespace
}  // namespace muster
