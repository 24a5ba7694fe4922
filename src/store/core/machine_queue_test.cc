// Queues on the store machine: order, blocking pops (WAIT, then QUEUE_POP) and the elements kept
// for them.
#include <gtest/gtest.h>

#include "store/core/machine.h"
#include "support/machine_test_words.h"

namespace muster {
namespace {

using namespace testing_words;  // NOLINT: it is the vocabulary of this file

constexpr StoreMachineOptions kKeptOneSecond{.reservation_max = 1s};

TEST(StoreQueueTest, Item067_AnUnknownQueueIsEmpty) {
  SpokenStore store;
  EXPECT_EQ(store.Length(kA, "q"), "0");
  EXPECT_EQ(store.Check(kA, {"q"}), "not ready");
}

TEST(StoreQueueTest, Item068_ElementsComeOutInOrderAndTheQueueIsGoneWithTheLast) {
  SpokenStore store;
  store.Push(kA, "q", "1");
  store.Push(kA, "q", "2");
  EXPECT_EQ(store.Length(kA, "q"), "2");
  EXPECT_EQ(store.Check(kA, {"q"}), "ready");
  EXPECT_EQ(store.Wait(kA, {"q"}), "go");
  EXPECT_EQ(store.Pop(kA, "q"), "2 '1'");
  EXPECT_EQ(store.Pop(kA, "q"), "1 '2'");
  EXPECT_EQ(store.Length(kA, "q"), "0");
  EXPECT_EQ(store.Check(kA, {"q"}), "not ready");
  EXPECT_EQ(store.Stats().queues, 0u);
}

TEST(StoreQueueTest, Item069_APopOfAnEmptyQueueHasNoValue) {
  EXPECT_EQ(SpokenStore().Pop(kA, "q"), "0");
}

TEST(StoreQueueTest, Item070_APopTellsTheLengthBeforeIt) {
  SpokenStore store;
  store.Push(kA, "q", "1");
  store.Push(kA, "q", "2");
  EXPECT_EQ(store.Pop(kB, "q"), "2 '1'");
}

TEST(StoreQueueTest, AnEmptyElementIsAnElement) {
  SpokenStore store;
  store.Push(kA, "q", "");
  EXPECT_EQ(store.Pop(kA, "q"), "1 ''");
}

TEST(StoreQueueTest, Item071_ABlockingPopParkedBeforeThePushIsReleasedByIt) {
  SpokenStore store;
  EXPECT_EQ(store.Wait(kA, {"q"}), "-");
  EXPECT_EQ(store.Push(kB, "q", "job"), "-, releases a");
  EXPECT_EQ(store.Pop(kA, "q"), "1 'job'");
}

TEST(StoreQueueTest, Item072_ABlockingPopThatGivesUpLeavesTheNextElementToOthers) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  EXPECT_EQ(store.Cancel(kA), "cancelled");
  EXPECT_EQ(store.Push(kB, "q", "job"), "-");
  EXPECT_EQ(store.Pop(kB, "q"), "1 'job'");
}

TEST(StoreQueueTest, Item073_OnePushReleasesExactlyTheEarliestOfTwoPoppers) {
  SpokenStore store;
  store.Wait(kB, {"q"});
  store.Wait(kA, {"q"});
  EXPECT_EQ(store.Push(kC, "q", "1"), "-, releases b");
  EXPECT_EQ(store.Push(kC, "q", "2"), "-, releases a");
  EXPECT_EQ(store.Push(kC, "q", "3"), "-");
}

TEST(StoreQueueTest, Item074_AReleasedClientIsNotReleasedByLaterPushes) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  store.Push(kB, "q", "1");
  EXPECT_EQ(store.Pop(kA, "q"), "1 '1'");
  store.Wait(kA, {"k"});
  EXPECT_EQ(store.Push(kB, "q", "2"), "-");
  EXPECT_EQ(store.Set(kB, "k", ""), "-, releases a");
}

TEST(StoreQueueTest, Item075_ThePopperOfAReleasedClientThatDisconnectsIsReplacedByTheNext) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  store.Wait(kB, {"q"});
  store.Push(kC, "q", "job");
  EXPECT_EQ(store.Drop(kA), "-, releases b");
  EXPECT_EQ(store.Pop(kB, "q"), "1 'job'");
}

TEST(StoreQueueTest, Item076_QueuesAreInvisibleToTheOperationsOnKeys) {
  SpokenStore store;
  store.Push(kA, "q", "1");
  EXPECT_EQ(store.Get(kA, "q"), "''");
  EXPECT_EQ(store.NumKeys(kA), "0");
  EXPECT_EQ(store.ListKeys(kA), "[]");
  EXPECT_EQ(store.MultiGet(kA, {"q"}), "['']");
  EXPECT_EQ(store.Delete(kA, "q"), "0");
  EXPECT_EQ(store.Add(kA, "q", 1), "1");
  EXPECT_EQ(store.Length(kA, "q"), "1");
}

TEST(StoreQueueTest, Item077_TwoClientsExchangeMessagesOverTwoQueues) {
  SpokenStore store;
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(store.Wait(kB, {"a to b"}), "-");
    EXPECT_EQ(store.Push(kA, "a to b", "question"), "-, releases b");
    EXPECT_EQ(store.Wait(kA, {"b to a"}), "-");
    EXPECT_EQ(store.Pop(kB, "a to b"), "1 'question'");
    EXPECT_EQ(store.Push(kB, "b to a", "answer"), "-, releases a");
    EXPECT_EQ(store.Pop(kA, "b to a"), "1 'answer'");
  }
}

TEST(StoreQueueTest, AKeyAndAQueueOfOneNameAreTwoThings) {
  SpokenStore store;
  store.Set(kA, "k", "value");
  store.Push(kA, "k", "element");
  EXPECT_EQ(store.Delete(kA, "k"), "1");
  EXPECT_EQ(store.Check(kA, {"k"}), "ready");  // the queue still has the name
  EXPECT_EQ(store.Pop(kA, "k"), "1 'element'");
  EXPECT_EQ(store.Check(kA, {"k"}), "not ready");
}

TEST(StoreQueueTest, CreatingTheKeyReleasesEveryPopperOfTheQueue) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  store.Wait(kB, {"q"});
  EXPECT_EQ(store.Set(kC, "q", ""), "-, releases a b");
  EXPECT_EQ(store.Pop(kA, "q"), "0");
}

// --- Elements kept for a client between its WAIT and its QUEUE_POP

TEST(StoreReservationTest, NobodyElseCanTakeTheElementOfAReleasedClient) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  store.Push(kB, "q", "job");
  EXPECT_EQ(store.Pop(kB, "q"), "0");
  EXPECT_EQ(store.Length(kB, "q"), "1");
  EXPECT_EQ(store.Pop(kA, "q"), "1 'job'");
}

TEST(StoreReservationTest, AWaitAnsweredAtOnceKeepsAnElementToo) {
  SpokenStore store;
  store.Push(kB, "q", "job");
  EXPECT_EQ(store.Wait(kA, {"q"}), "go");
  EXPECT_EQ(store.Pop(kB, "q"), "0");
  EXPECT_EQ(store.Wait(kB, {"q"}), "-");
  EXPECT_EQ(store.Pop(kA, "q"), "1 'job'");
  EXPECT_EQ(store.Push(kA, "q", "next"), "-, releases b");
}

TEST(StoreReservationTest, APopTakesFreeElementsPastThoseKeptForOthers) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  store.Push(kB, "q", "1");
  store.Push(kB, "q", "2");
  EXPECT_EQ(store.Pop(kB, "q"), "2 '1'");
  EXPECT_EQ(store.Pop(kB, "q"), "0");
  EXPECT_EQ(store.Pop(kA, "q"), "1 '2'");
}

TEST(StoreReservationTest, AnyOtherRequestGivesTheElementUpToTheNextInLine) {
  const Keys keys = {"x"};
  const Request others[] = {{.op = Op::kSet, .key = "x"},
                            {.op = Op::kCompareSet, .key = "x"},
                            {.op = Op::kGet, .key = "x"},
                            {.op = Op::kAdd, .key = "n"},
                            {.op = Op::kCheck, .keys = keys},
                            {.op = Op::kWait, .keys = keys},
                            {.op = Op::kGetNumKeys},
                            {.op = Op::kDeleteKey, .key = "x"},
                            {.op = Op::kAppend, .key = "x"},
                            {.op = Op::kMultiGet, .keys = keys},
                            {.op = Op::kCancelWait},
                            {.op = Op::kPing},
                            {.op = Op::kQueuePush, .key = "x"},
                            {.op = Op::kQueuePop, .key = "x"},
                            {.op = Op::kQueueLen, .key = "q"},
                            {.op = Op::kListKeys},
                            {.op = Op::kBarrier, .key = "n", .number = 1}};
  for (const Request& other : others) {
    SpokenStore store;
    store.Wait(kA, {"q"});
    store.Wait(kB, {"q"});
    store.Push(kC, "q", "job");
    EXPECT_TRUE(store.Ask(kA, other).ends_with(", releases b")) << Name(other.op);
    EXPECT_EQ(store.Pop(kA, "q"), "0") << Name(other.op);
    EXPECT_EQ(store.Pop(kB, "q"), "1 'job'") << Name(other.op);
  }
}

TEST(StoreReservationTest, RequestsOfOthersDoNotTouchIt) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  store.Push(kB, "q", "job");
  store.Cancel(kB);
  store.Set(kB, "q", "");
  store.Delete(kB, "q");
  EXPECT_EQ(store.Drop(kB), "-");
  EXPECT_EQ(store.Pop(kC, "q"), "0");
  EXPECT_EQ(store.Pop(kA, "q"), "1 'job'");
}

TEST(StoreReservationTest, AClientThatWaitsAgainGetsItsElementBackIfNobodyStandsInLine) {
  SpokenStore store;
  store.Push(kC, "q", "job");
  EXPECT_EQ(store.Wait(kA, {"q"}), "go");
  EXPECT_EQ(store.Wait(kA, {"q"}), "go");
  EXPECT_EQ(store.Wait(kB, {"q"}), "-");
  EXPECT_EQ(store.Wait(kA, {"q"}), "-, releases b");
}

TEST(StoreReservationTest, AnElementKeptTooLongGoesToTheNextInLine) {
  SpokenStore store(kKeptOneSecond);
  store.Wait(kA, {"q"});
  store.Push(kC, "q", "job");
  store.Wait(kB, {"q"});
  EXPECT_EQ(store.Pass(999ms), "-");
  EXPECT_EQ(store.Pass(1ms), "-, releases b");
  EXPECT_EQ(store.Pop(kA, "q"), "0");
  EXPECT_EQ(store.Pop(kB, "q"), "1 'job'");
}

TEST(StoreReservationTest, AnElementKeptTooLongIsFreeForAnyone) {
  SpokenStore store(kKeptOneSecond);
  store.Push(kC, "q", "job");
  store.Wait(kA, {"q"});
  store.Pass(1s);
  EXPECT_EQ(store.Pop(kB, "q"), "1 'job'");
}

TEST(StoreReservationTest, EachClientInLineHasItsOwnTime) {
  SpokenStore store(kKeptOneSecond);
  for (const ClientId client : {kA, kB, kC}) store.Wait(client, {"q"});
  store.Push(kD, "q", "job");
  EXPECT_EQ(store.Pass(1s), "-, releases b");
  EXPECT_EQ(store.Pass(999ms), "-");
  EXPECT_EQ(store.Pass(1ms), "-, releases c");
  EXPECT_EQ(store.Pass(1h), "-");
  EXPECT_EQ(store.Pop(kD, "q"), "1 'job'");
}

TEST(StoreReservationTest, WithoutAnyTimeEveryoneInLineIsLetGoAndTheFastestWins) {
  SpokenStore store({.reservation_max = 0s});
  for (const ClientId client : {kA, kB, kC}) store.Wait(client, {"q"});
  EXPECT_EQ(store.Push(kD, "q", "job"), "-, releases a");
  EXPECT_EQ(store.Pass(0s), "-, releases b c");
  EXPECT_EQ(store.Pop(kC, "q"), "1 'job'");
  EXPECT_EQ(store.Pop(kA, "q"), "0");
}

// --- Queues in waits for several keys

TEST(StoreReservationTest, ANonEmptyQueueSatisfiesItsKeyInAWaitForSeveral) {
  SpokenStore store;
  store.Push(kB, "q", "job");
  EXPECT_EQ(store.Wait(kA, {"q", "k"}), "-");
  EXPECT_EQ(store.Stats().waited_keys, 1u);
  EXPECT_EQ(store.Set(kB, "k", ""), "-, releases a");
}

TEST(StoreReservationTest, AWaitForSeveralKeysDoesNotHoldAnElementWhileItIsParked) {
  SpokenStore store;
  store.Wait(kA, {"q", "k"});
  EXPECT_EQ(store.Push(kB, "q", "job"), "-");
  EXPECT_EQ(store.Pop(kB, "q"), "1 'job'");
  EXPECT_EQ(store.Set(kB, "k", ""), "-, releases a");  // q existed before; it stays satisfied
}

TEST(StoreReservationTest, AWaitForSeveralKeysThatEndsWithThePushHasTheElement) {
  SpokenStore store;
  store.Wait(kA, {"k", "q"});
  store.Wait(kB, {"q"});
  store.Set(kC, "k", "");
  EXPECT_EQ(store.Push(kC, "q", "job"), "-, releases a");
  EXPECT_EQ(store.Pop(kC, "q"), "0");
  EXPECT_EQ(store.Pop(kA, "q"), "1 'job'");
}

TEST(StoreReservationTest, OfTwoReadyQueuesTheFirstNamedKeepsAnElement) {
  SpokenStore store;
  store.Push(kC, "q", "1");
  store.Push(kC, "r", "2");
  EXPECT_EQ(store.Wait(kA, {"r", "q"}), "go");
  EXPECT_EQ(store.Pop(kC, "r"), "0");
  EXPECT_EQ(store.Pop(kC, "q"), "1 '1'");
}

TEST(StoreReservationTest, PoppingTheOtherQueueGivesTheKeptElementUp) {
  SpokenStore store;
  store.Push(kC, "q", "1");
  store.Push(kC, "r", "2");
  store.Wait(kA, {"q", "r"});
  store.Wait(kB, {"q"});
  EXPECT_EQ(store.Pop(kA, "r"), "1 '2', releases b");
}

TEST(StoreReservationTest, AParkedPopperMayPushToItself) {
  SpokenStore store;
  store.Wait(kA, {"q"});
  EXPECT_EQ(store.Push(kA, "q", "job"), "-, releases a");
  EXPECT_EQ(store.Pop(kB, "q"), "0");
  EXPECT_EQ(store.Pop(kA, "q"), "1 'job'");
}

TEST(StoreReservationTest, APresentKeyAnswersAWaitWithoutTouchingTheQueueOfThatName) {
  SpokenStore store;
  store.Set(kB, "q", "");
  store.Push(kB, "q", "job");
  EXPECT_EQ(store.Wait(kA, {"q"}), "go");
  EXPECT_EQ(store.Pop(kB, "q"), "1 'job'");
}

}  // namespace
}  // namespace muster
