// Handwritten histories: for every operation some that can be explained and some that cannot, and
// every false answer that a store could give.
#include "histories/checker.h"

#include <gtest/gtest.h>

#include "histories/history_words.h"

namespace muster::test {

namespace {

bool IsLinearizable(const History& history) {
  const Verdict verdict = Check(history);
  EXPECT_NE(verdict.kind, Verdict::Kind::kUndecided);
  return verdict.kind == Verdict::Kind::kLinearizable;
}

// Two operations that were under way at the same time may have happened in either order.
constexpr int64_t kBegin = 0, kEnd = 100;

}  // namespace

// ----------------------------------------------------------------------------------------------
// order in time

TEST(CheckerTest, NothingIsLinearizable) { EXPECT_TRUE(IsLinearizable({})); }

TEST(CheckerTest, AReadSeesTheLastWrite) {
  EXPECT_TRUE(IsLinearizable({Set("a").At(0, 1), Set("b").At(2, 3), Get("b").At(4, 5)}));
}

TEST(CheckerTest, AStaleReadIsFound) {
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), Set("b").At(2, 3), Get("a").At(4, 5)}));
}

TEST(CheckerTest, AReadDuringAWriteSeesEither) {
  for (const char* seen : {"a", "b"}) {
    EXPECT_TRUE(IsLinearizable({Set("a").At(0, 1), Set("b").At(2, 9), Get(seen).At(3, 8)}));
  }
}

TEST(CheckerTest, ReadersDoNotDisagreeAboutTheOrderOfWrites) {
  const History writes = {Set("a").At(kBegin, kEnd), Set("b").At(kBegin, kEnd)};
  History history = writes;
  history.push_back(Get("a").At(10, 20));
  history.push_back(Get("b").At(30, 40));
  EXPECT_TRUE(IsLinearizable(history));
  history.push_back(Get("a").At(50, 60));
  EXPECT_FALSE(IsLinearizable(history));
}

TEST(CheckerTest, AValueOutOfThinAirIsFound) {
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), Get("c").At(0, 5)}));
}

TEST(CheckerTest, AReadBeforeTheWriteWasCalledIsFound) {
  EXPECT_FALSE(IsLinearizable({Read("a").At(0, 1), Set("a").At(2, 3)}));
}

TEST(CheckerTest, EqualMomentsAreNoOrder) {
  EXPECT_TRUE(IsLinearizable({Read("").At(5, 9), Set("a").At(0, 5)}));
}

// ----------------------------------------------------------------------------------------------
// unknown outcomes

TEST(CheckerTest, TheUnknownMayHappenLaterOrNever) {
  EXPECT_TRUE(IsLinearizable({Set("a").Unknown(0), Read("").At(5, 6)}));
  EXPECT_TRUE(IsLinearizable({Set("a").Unknown(0), Read("").At(5, 6), Read("a").At(7, 8)}));
}

TEST(CheckerTest, TheUnknownDoesNotHappenTwice) {
  EXPECT_FALSE(IsLinearizable({Set("a").Unknown(0), Set("b").At(0, 10), Read("a").At(20, 21),
                               Read("b").At(22, 23), Read("a").At(24, 25)}));
  EXPECT_FALSE(IsLinearizable({Add(1, 0).Unknown(0), Add(1, 3).At(5, 6)}));
}

TEST(CheckerTest, TheUnknownDoesNotHappenBeforeItsCall) {
  EXPECT_FALSE(IsLinearizable({Read("a").At(0, 1), Set("a").Unknown(2)}));
}

TEST(CheckerTest, AnUnknownPopTakesAnElementOrNone) {
  const History pushed = {Push("a").At(0, 1), Push("b").At(2, 3), Pop("").Unknown(4)};
  for (const char* next : {"a", "b"}) {
    History history = pushed;
    history.push_back(TryPop(next).At(5, 6));
    EXPECT_TRUE(IsLinearizable(history));
  }
}

TEST(CheckerTest, AnUnknownPopMayHaveFoundNothing) {
  const History lost = {TryPop("").Unknown(0).By(1, 0), Push("a").Unknown(0).By(1, 1)};
  History history = lost;
  history.push_back(TryPop("a").At(5, 6));
  EXPECT_TRUE(IsLinearizable(history));
  // It does not take what was pushed behind it.
  history = {TryPop("").Unknown(0).By(1, 0), Push("a").At(0, 3).By(1, 1), QueueLen(0).At(5, 6)};
  EXPECT_FALSE(IsLinearizable(history));
}

// ----------------------------------------------------------------------------------------------
// order of a session

TEST(CheckerTest, ASessionSeesItsOwnWrites) {
  // A SET has no reply: the next answer after it ends it. The order holds nevertheless.
  EXPECT_TRUE(IsLinearizable({Set("a").At(0, 5).By(1, 0), Read("a").At(2, 5).By(1, 1)}));
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 5).By(1, 0), Read("").At(2, 5).By(1, 1)}));
}

TEST(CheckerTest, TheUnknownOfASessionHappensInOrder) {
  const History lost = {Append("a").Unknown(0).By(1, 0), Append("b").Unknown(0).By(1, 1)};
  for (const char* seen : {"", "a", "ab"}) {
    History history = lost;
    history.push_back(Read(seen).At(5, 6));
    EXPECT_TRUE(IsLinearizable(history)) << seen;
  }
  for (const char* seen : {"b", "ba"}) {
    History history = lost;
    history.push_back(Read(seen).At(5, 6));
    EXPECT_FALSE(IsLinearizable(history)) << seen;
  }
}

// ----------------------------------------------------------------------------------------------
// each operation, and false answers

TEST(CheckerTest, Get_WaitsForTheKey) {
  EXPECT_TRUE(IsLinearizable({Get("a").At(0, 9), Set("a").At(5, 6)}));
  EXPECT_FALSE(IsLinearizable({Get("").At(0, 9)}));
  EXPECT_TRUE(IsLinearizable({Get("").At(0, 9).EndedAs(Outcome::kTimedOut)}));
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), Get("").At(2, 9).EndedAs(Outcome::kTimedOut)}));
}

TEST(CheckerTest, Get_FindsAQueueButNoValueInIt) {
  EXPECT_TRUE(IsLinearizable({Push("a").At(0, 1), Get("").At(2, 3)}));
  EXPECT_FALSE(IsLinearizable({Push("a").At(0, 1), Get("a").At(2, 3)}));
}

TEST(CheckerTest, Add_CountsEveryOne) {
  EXPECT_TRUE(IsLinearizable({Add(2, 5).At(kBegin, kEnd), Add(3, 3).At(kBegin, kEnd)}));
  EXPECT_TRUE(IsLinearizable({Set("-2").At(0, 1), Add(2, 0).At(2, 3), Get("0").At(4, 5)}));
}

TEST(CheckerTest, Add_ALostOneIsFound) {
  EXPECT_FALSE(IsLinearizable({Add(1, 1).At(kBegin, kEnd), Add(1, 1).At(kBegin, kEnd)}));
  EXPECT_FALSE(IsLinearizable({Add(1, 1).At(0, 1), Get("0").At(2, 3)}));
}

TEST(CheckerTest, Add_ARepeatedOneIsFound) {
  EXPECT_FALSE(IsLinearizable({Add(1, 2).At(0, 1)}));
  EXPECT_FALSE(IsLinearizable({Add(1, 1).At(0, 1), Get("2").At(2, 3)}));
}

TEST(CheckerTest, Add_IsRefusedByWhatIsNoNumber) {
  const auto refused = [] { return Add(1, 0).Saw({}).At(2, 3).EndedAs(Outcome::kRefused); };
  EXPECT_TRUE(IsLinearizable({Set("abc").At(0, 1), refused(), Get("abc").At(4, 5)}));
  EXPECT_TRUE(IsLinearizable({Set("").At(0, 1), refused()}));
  EXPECT_TRUE(IsLinearizable({Set("9223372036854775808").At(0, 1), refused()}));
  EXPECT_FALSE(IsLinearizable({Set("12abc").At(0, 1), refused()}));
  EXPECT_FALSE(IsLinearizable({refused()}));
  EXPECT_TRUE(IsLinearizable({Set("12abc").At(0, 1), Add(1, 13).At(2, 3)}));
}

TEST(CheckerTest, CompareSet_ComparesAndSets) {
  EXPECT_TRUE(IsLinearizable({CompareSet("", "a", "a").At(0, 1), CompareSet("a", "b", "b").At(2, 3),
                              CompareSet("a", "c", "b").At(4, 5), Get("b").At(6, 7)}));
  // An absent key gives back any expectation but the empty one.
  EXPECT_TRUE(IsLinearizable({CompareSet("x", "a", "x").At(0, 1), Read("").At(2, 3)}));
  EXPECT_FALSE(IsLinearizable({CompareSet("x", "a", "a").At(0, 1)}));
  EXPECT_TRUE(IsLinearizable({Set("").At(0, 1), CompareSet("", "a", "a").At(2, 3)}));
}

TEST(CheckerTest, CompareSet_ALostUpdateIsFound) {
  EXPECT_FALSE(IsLinearizable({Set("0").At(0, 1), CompareSet("0", "a", "a").At(10, 20),
                               CompareSet("0", "b", "b").At(10, 20)}));
  EXPECT_FALSE(IsLinearizable({CompareSet("", "a", "a").At(0, 1), Read("").At(2, 3)}));
}

TEST(CheckerTest, CompareSet_AWriteDespiteADifferenceIsFound) {
  EXPECT_FALSE(
      IsLinearizable({Set("0").At(0, 1), CompareSet("1", "a", "0").At(2, 3), Get("a").At(4, 5)}));
}

TEST(CheckerTest, Append_KeepsEverythingInOneOrder) {
  const History both = {Append("a").At(kBegin, kEnd), Append("b").At(kBegin, kEnd)};
  for (const char* seen : {"ab", "ba"}) {
    History history = both;
    history.push_back(Get(seen).At(200, 201));
    EXPECT_TRUE(IsLinearizable(history));
  }
  for (const char* seen : {"a", "b", "aab", "abb", ""}) {  // lost or repeated
    History history = both;
    history.push_back(Read(seen).At(200, 201));
    EXPECT_FALSE(IsLinearizable(history)) << seen;
  }
}

TEST(CheckerTest, Delete_ReturnsWhetherThereWasOne) {
  EXPECT_TRUE(IsLinearizable({Set("a").At(0, 1), Delete(true).At(2, 3), Delete(false).At(4, 5),
                              CheckSaw(false).At(6, 7)}));
  EXPECT_FALSE(IsLinearizable({Delete(true).At(0, 1)}));
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), Delete(false).At(2, 3)}));
}

TEST(CheckerTest, Delete_AFalseSuccessIsFound) {
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), Delete(true).At(2, 3), Get("a").At(4, 5)}));
}

TEST(CheckerTest, Delete_OfOneValueSucceedsOnce) {
  EXPECT_FALSE(
      IsLinearizable({Set("a").At(0, 1), Delete(true).At(10, 20), Delete(true).At(10, 20)}));
}

TEST(CheckerTest, Delete_LeavesQueues) {
  EXPECT_TRUE(IsLinearizable({Push("a").At(0, 1), Delete(false).At(2, 3), TryPop("a").At(4, 5)}));
}

TEST(CheckerTest, Check_SeesValuesAndQueues) {
  EXPECT_TRUE(IsLinearizable({CheckSaw(false).At(0, 1), Push("a").At(2, 3), CheckSaw(true).At(4, 5),
                              TryPop("a").At(6, 7), CheckSaw(false).At(8, 9)}));
  EXPECT_FALSE(IsLinearizable({CheckSaw(true).At(0, 1)}));
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), CheckSaw(false).At(2, 3)}));
}

TEST(CheckerTest, Wait_EndsOnlyWhenTheKeyHasBeenThere) {
  EXPECT_TRUE(IsLinearizable({Wait().At(0, 9), Set("a").At(1, 2), Delete(true).At(3, 4)}));
  EXPECT_FALSE(IsLinearizable({Wait().At(0, 9)}));
  EXPECT_FALSE(IsLinearizable({Wait().At(0, 3), Set("a").At(4, 5)}));
  EXPECT_FALSE(IsLinearizable({Wait().At(0, 9), CompareSet("x", "a", "x").At(1, 2)}));
}

TEST(CheckerTest, Wait_InVainMeansThatTheKeyWasNotThere) {
  const auto in_vain = [] { return Wait().At(5, 9).EndedAs(Outcome::kTimedOut); };
  EXPECT_TRUE(IsLinearizable({in_vain()}));
  EXPECT_TRUE(IsLinearizable({in_vain(), Set("a").At(6, 20)}));
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), in_vain()}));
}

TEST(CheckerTest, Wait_ForSeveralKeysSeesEachAtItsOwnTime) {
  const auto on = [](const char* key, Called operation) {
    operation.keys = {key};
    return operation;
  };
  Called both = Called(Kind::kWait, {"x", "y"}).At(0, 99);
  EXPECT_TRUE(IsLinearizable({both, on("x", Set("a").At(1, 2)), on("x", Delete(true).At(3, 4)),
                              on("y", Set("a").At(5, 6))}));
  EXPECT_FALSE(IsLinearizable({both, on("x", Set("a").At(1, 2))}));
}

TEST(CheckerTest, Queue_IsFirstInFirstOut) {
  const History pushed = {Push("a").At(0, 1), Push("b").At(2, 3), QueueLen(2).At(4, 5)};
  History right = pushed;
  right.insert(right.end(), {Pop("a").At(6, 7), TryPop("b").At(8, 9), QueueLen(0).At(10, 11)});
  EXPECT_TRUE(IsLinearizable(right));
  History wrong = pushed;
  wrong.push_back(Pop("b").At(6, 7));
  EXPECT_FALSE(IsLinearizable(wrong));
}

TEST(CheckerTest, Queue_ADoublePopIsFound) {
  EXPECT_FALSE(IsLinearizable({Push("a").At(0, 1), Pop("a").At(10, 20), TryPop("a").At(10, 20)}));
}

TEST(CheckerTest, Queue_ALostElementIsFound) {
  EXPECT_FALSE(IsLinearizable({Push("a").At(0, 1), PopFoundNothing().At(2, 3)}));
  EXPECT_FALSE(IsLinearizable({Push("a").At(0, 1), QueueLen(0).At(2, 3)}));
}

TEST(CheckerTest, Queue_AnElementThatWasNotPoppedIsInTheWay) {
  const auto pops = [](bool with_unknown_pop) {
    History history = {Push("a").At(0, 1), Push("b").At(2, 3), TryPop("b").At(8, 9)};
    if (with_unknown_pop) history.push_back(Pop("").Unknown(4));
    return history;
  };
  EXPECT_FALSE(IsLinearizable(pops(false)));
  EXPECT_TRUE(IsLinearizable(pops(true)));
}

TEST(CheckerTest, Queue_ARepeatedElementIsFound) {
  EXPECT_FALSE(IsLinearizable({Push("a").At(0, 1), QueueLen(2).At(2, 3)}));
}

TEST(CheckerTest, Queue_APopWaitsForAnElement) {
  EXPECT_TRUE(IsLinearizable({Pop("a").At(0, 9), Push("a").At(4, 5)}));
  EXPECT_TRUE(IsLinearizable({Pop("").At(0, 9).EndedAs(Outcome::kTimedOut)}));
  EXPECT_FALSE(IsLinearizable({Pop("a").At(0, 3), Push("a").At(4, 5)}));
  EXPECT_FALSE(IsLinearizable({Push("a").At(0, 1), Pop("").At(2, 9).EndedAs(Outcome::kTimedOut)}));
}

// The element of (3, 4) is reserved for the pop that waits since 0. Checks see it, and the pop at
// (5, 6) does not get it.
TEST(CheckerTest, Queue_AnElementMayBeReservedForAWaiter) {
  const History kept = {Push("a").At(3, 4), PopFoundNothing().At(5, 6), QueueLen(1).At(7, 8)};
  EXPECT_FALSE(IsLinearizable(kept));
  History with_waiter = kept;
  with_waiter.push_back(Pop("a").At(0, 20));
  EXPECT_TRUE(IsLinearizable(with_waiter));
  History with_late_waiter = kept;
  with_late_waiter.push_back(Pop("a").At(7, 20));
  EXPECT_FALSE(IsLinearizable(with_late_waiter));
}

TEST(CheckerTest, Queue_AReservedElementIsFreeOnceItsClientSendsAnotherRequest) {
  const auto waited = [](int64_t next) -> History {
    return {Push("a").At(0, 1), Wait().At(2, 3).By(1, 0), QueueLen(1).At(next, next + 1).By(1, 1),
            PopFoundNothing().At(10, 11)};
  };
  EXPECT_TRUE(IsLinearizable(waited(20)));
  EXPECT_FALSE(IsLinearizable(waited(4)));
}

// ----------------------------------------------------------------------------------------------
// several keys

TEST(CheckerTest, KeysThatNothingJoinsAreCheckedApart) {
  Called elsewhere = Get("wrong").At(0, 1);
  elsewhere.keys = {"other"};
  const Verdict verdict = Check({Set("a").At(0, 1), Get("a").At(2, 3), elsewhere});
  EXPECT_EQ(verdict.kind, Verdict::Kind::kViolation);
  EXPECT_EQ(verdict.guilty, History{elsewhere});
}

TEST(CheckerTest, MultiSet_IsSeenAsAWholeOrNotAtAll) {
  const auto history = [](std::vector<std::string> seen) -> History {
    return {Called(Kind::kMultiSet, {"x", "y"}).With({"0", "0"}).At(0, 1),
            Called(Kind::kMultiSet, {"x", "y"}).With({"1", "1"}).At(2, 9),
            Called(Kind::kMultiGet, {"x", "y"}).Saw(std::move(seen)).At(3, 8)};
  };
  EXPECT_TRUE(IsLinearizable(history({"0", "0"})));
  EXPECT_TRUE(IsLinearizable(history({"1", "1"})));
  EXPECT_FALSE(IsLinearizable(history({"1", "0"})));
  EXPECT_FALSE(IsLinearizable(history({"0", "1"})));
}

TEST(CheckerTest, MultiGet_WaitsForAllKeys) {
  const auto both = [] { return Called(Kind::kMultiGet, {"k", "y"}).At(0, 9); };
  EXPECT_FALSE(IsLinearizable({Set("a").At(0, 1), both().Saw({"a", ""})}));
  EXPECT_TRUE(IsLinearizable(
      {Set("a").At(0, 1), both().Saw({"a", "b"}), Called(Kind::kSet, {"y"}).With({"b"}).At(5, 6)}));
}

TEST(CheckerTest, Check_OfSeveralKeysIsOneLook) {
  const auto on = [](const char* key, Called operation) {
    operation.keys = {key};
    return operation;
  };
  // x is deleted before y is set: they never exist at the same time.
  const History moved = {on("x", Set("a").At(0, 1)), on("x", Delete(true).At(2, 3)),
                         on("y", Set("a").At(4, 5))};
  for (const bool there : {false, true}) {
    History history = moved;
    history.push_back(Called(Kind::kCheck, {"x", "y"}).Saw({there ? "1" : "0"}).At(0, 99));
    EXPECT_EQ(IsLinearizable(history), !there);
  }
}

TEST(CheckerTest, ASearchThatReachedItsLimitReportsIt) {
  History history;
  for (int i = 0; i < 12; ++i) history.push_back(Append(std::to_string(i)).At(kBegin, kEnd));
  history.push_back(Get("nothing like it").At(200, 201));
  EXPECT_EQ(Check(history, 1'000).kind, Verdict::Kind::kUndecided);
}

}  // namespace muster::test
