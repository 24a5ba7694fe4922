// CHECK, WAIT, CANCEL_WAIT and BARRIER on the store machine, one small story at a time.
#include <gtest/gtest.h>
#include <malloc.h>

#include "base/text.h"
#include "store/core/machine.h"
#include "support/machine_test_words.h"

namespace muster {
namespace {

using namespace testing_words;  // NOLINT: it is the vocabulary of this file

// --- CHECK

TEST(StoreCheckTest, Item039_CheckOfNothingIsReady) {
  EXPECT_EQ(SpokenStore().Check(kA, {}), "ready");
}

TEST(StoreCheckTest, Item040_CheckWithOneKeyMissingIsNotReady) {
  SpokenStore store;
  store.MultiSet(kA, {"1", "2", "4"}, {"", "", ""});
  EXPECT_EQ(store.Check(kA, {"1", "2", "4", "1"}), "ready");
  EXPECT_EQ(store.Check(kA, {"1", "2", "3", "4"}), "not ready");
}

TEST(StoreCheckTest, CheckNeverParks) {
  SpokenStore store;
  store.Check(kA, {"k"});
  EXPECT_EQ(store.Set(kB, "k", "v"), "-");
  EXPECT_EQ(store.Stats().parked_clients, 0u);
}

// --- WAIT

TEST(StoreWaitTest, Item039_WaitForNothingReturnsAtOnce) {
  EXPECT_EQ(SpokenStore().Wait(kA, {}), "go");
}

TEST(StoreWaitTest, Item041_WaitForPresentKeysReturnsAtOnce) {
  SpokenStore store;
  store.MultiSet(kA, {"1", "2"}, {"", "x"});
  EXPECT_EQ(store.Wait(kB, {"1", "2"}), "go");
  EXPECT_EQ(store.Stats().parked_clients, 0u);
}

TEST(StoreWaitTest, Item042_WaitEndsWithTheLastMissingKey) {
  SpokenStore store;
  store.Set(kB, "1", "");
  EXPECT_EQ(store.Wait(kA, {"1", "2", "3"}), "-");
  EXPECT_EQ(store.Set(kB, "3", ""), "-");
  EXPECT_EQ(store.Set(kB, "2", ""), "-, releases a");
}

TEST(StoreWaitTest, Item043_WaitForDuplicateKeysEndsWithOneSet) {
  SpokenStore store;
  EXPECT_EQ(store.Wait(kA, {"k", "k"}), "-");
  EXPECT_EQ(store.Set(kB, "k", ""), "-, releases a");
  EXPECT_EQ(store.Stats().waited_keys, 0u);
}

TEST(StoreWaitTest, Item044_ClientsThatSetOneKeyAndWaitForAllOfThemAllReturn) {
  constexpr size_t kClients = 128;
  StoreMachine machine;
  Released released;
  std::vector<std::string> names;
  for (size_t i = 0; i < kClients; ++i) names.push_back(std::to_string(i));
  const Keys all(names.begin(), names.end());
  size_t at_once = 0;
  for (size_t i = 0; i < kClients; ++i) {
    machine.Step(ClientId{i}, {.op = Op::kSet, .key = names[i]}, Instant{}, released);
    const Reply reply =
        machine.Step(ClientId{i}, {.op = Op::kWait, .keys = all}, Instant{}, released);
    if (reply.kind == Reply::Kind::kStopWaiting) ++at_once;
  }
  EXPECT_EQ(at_once, 1u);  // the last client to set finds all keys
  EXPECT_EQ(released.size(), kClients - 1);
}

TEST(StoreWaitTest, Item045_EveryWriteThatCreatesAKeyReleasesAllItsWaiters) {
  SpokenStore store;
  const auto park = [&](std::string_view key) {
    for (const ClientId client : {kC, kA, kB}) store.Wait(client, {key});
  };
  park("set");
  EXPECT_EQ(store.Set(kD, "set", ""), "-, releases c a b");
  park("add");
  EXPECT_EQ(store.Add(kD, "add", 5), "5, releases c a b");
  park("append");
  EXPECT_EQ(store.Append(kD, "append", ""), "-, releases c a b");
  park("multi");
  EXPECT_EQ(store.MultiSet(kD, {"x", "multi", "y"}, {"", "", ""}), "-, releases c a b");
  park("barrier");
  EXPECT_EQ(store.Barrier(kD, "barrier", 1), "go, releases c a b");
}

TEST(StoreWaitTest, MultiSetReleasesOncePerClientEvenIfItCreatesSeveralOfItsKeys) {
  SpokenStore store;
  store.Wait(kA, {"1", "2", "1"});
  store.Wait(kB, {"2"});
  EXPECT_EQ(store.MultiSet(kD, {"2", "1", "2"}, {"", "", ""}), "-, releases b a");
}

TEST(StoreWaitTest, AWriteToAPresentKeyReleasesNobody) {
  SpokenStore store;
  store.Set(kA, "k", "1");
  store.Wait(kA, {"k", "l"});
  EXPECT_EQ(store.Set(kB, "k", "2"), "-");
  EXPECT_EQ(store.Append(kB, "k", "2"), "-");
  EXPECT_EQ(store.Add(kB, "k", 2), "24");
}

TEST(StoreWaitTest, ARefusedAddReleasesNobody) {
  SpokenStore store;
  store.Set(kA, "k", "abc");
  store.Wait(kA, {"k", "l"});
  EXPECT_EQ(store.Add(kB, "k", 1), kNotANumber);
  EXPECT_EQ(store.Set(kB, "l", ""), "-, releases a");
}

TEST(StoreWaitTest, Item054_DeletingAKeyDoesNotUndoWhatItSatisfied) {
  SpokenStore store;
  store.Set(kB, "1", "");
  store.Wait(kA, {"1", "2", "3"});
  store.Delete(kB, "1");
  store.Set(kB, "2", "");
  store.Delete(kB, "2");
  EXPECT_EQ(store.Set(kB, "3", ""), "-, releases a");
}

TEST(StoreWaitTest, DeletingAndCreatingAKeyAgainReleasesNewWaiters) {
  SpokenStore store;
  store.Set(kB, "k", "");
  store.Delete(kB, "k");
  EXPECT_EQ(store.Wait(kA, {"k"}), "-");
  EXPECT_EQ(store.Set(kB, "k", ""), "-, releases a");
}

TEST(StoreWaitTest, AReleasedClientIsNotReleasedAgain) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  store.Set(kB, "k", "");
  store.Delete(kB, "k");
  EXPECT_EQ(store.Set(kB, "k", ""), "-");
}

// On the wire, a client may send other requests while its WAIT is parked; the driver answers the
// WAIT after the request.
TEST(StoreWaitTest, AParkedClientMayCreateItsKeyItself) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  EXPECT_EQ(store.Get(kA, "k"), "''");
  EXPECT_EQ(store.Add(kA, "k", 1), "1, releases a");
}

TEST(StoreWaitTest, ASecondWaitOrBarrierWhileOneIsOutstandingIsRefused) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  EXPECT_EQ(store.Wait(kA, {"l"}), kAlreadyParked);
  EXPECT_EQ(store.Wait(kA, {}), kAlreadyParked);
  EXPECT_EQ(store.Barrier(kA, "b", 2), kAlreadyParked);
  EXPECT_EQ(store.Check(kA, {"b"}), "not ready");  // the refused arrival is not counted
  store.Barrier(kB, "b", 2);
  EXPECT_EQ(store.Wait(kB, {"k"}), kAlreadyParked);
  EXPECT_EQ(store.Barrier(kB, "b", 2), kAlreadyParked);
  EXPECT_EQ(store.Get(kA, "b"), "'1'");
  EXPECT_EQ(store.Set(kC, "k", ""), "-, releases a");
}

// --- CANCEL_WAIT

TEST(StoreCancelTest, Item049_CancelEndsAWait) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  EXPECT_EQ(store.Cancel(kA), "cancelled");
  EXPECT_EQ(store.Stats().parked_clients, 0u);
  EXPECT_EQ(store.Stats().waited_keys, 0u);
}

TEST(StoreCancelTest, Item050_AReleaseThatCrossesTheCancelComesFirstAndOnce) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  EXPECT_EQ(store.Set(kB, "k", ""), "-, releases a");
  EXPECT_EQ(store.Cancel(kA), "cancelled");
  store.Delete(kB, "k");
  EXPECT_EQ(store.Set(kB, "k", ""), "-");
}

TEST(StoreCancelTest, Item051_CancelWithNothingOutstandingIsAnsweredTheSame) {
  SpokenStore store;
  EXPECT_EQ(store.Cancel(kA), "cancelled");
  EXPECT_EQ(store.Cancel(kA), "cancelled");
}

TEST(StoreCancelTest, Item052_NothingFollowsACancel) {
  SpokenStore store;
  store.Wait(kA, {"k", "l"});
  store.Cancel(kA);
  EXPECT_EQ(store.MultiSet(kB, {"k", "l"}, {"", ""}), "-");
}

TEST(StoreCancelTest, CancelLeavesTheOthersInTheirOrder) {
  SpokenStore store;
  for (const ClientId client : {kA, kB, kC}) store.Wait(client, {"k"});
  store.Cancel(kB);
  store.Wait(kB, {"k"});
  EXPECT_EQ(store.Set(kD, "k", ""), "-, releases a c b");
}

TEST(StoreCancelTest, Item048_AfterACancelTheClientGoesOnAsBefore) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  store.Cancel(kA);
  EXPECT_EQ(store.Set(kA, "k", "v"), "-");
  EXPECT_EQ(store.Wait(kA, {"k"}), "go");
  EXPECT_EQ(store.Get(kA, "k"), "'v'");
}

TEST(StoreDropTest, Item053_WaitersThatLeaveAreForgottenHoweverManyTheyAre) {
  SpokenStore store;
  for (int i = 0; i < 1000; ++i) {
    store.Wait(kA, {"k", "l", "k"});
    EXPECT_EQ(store.Drop(kA), "-");
  }
  EXPECT_EQ(store.Stats(), StoreMachineStats{});
  EXPECT_EQ(store.MultiSet(kB, {"k", "l"}, {"", ""}), "-");
}

// Each round uses its own long name: memory that waits leak would add up to more than ten
// megabytes. (Under a sanitizer the C library counts nothing, and the sanitizer itself looks for
// leaks.)
TEST(StoreDropTest, Item053_WaitsThatEndLeaveNoMemoryBehind) {
  SpokenStore store;
  const auto round = [&](int number) {
    const auto fresh = [&](char story) { return Concat(number, story, std::string(1024, 'k')); };
    const std::string cancelled = fresh('c'), dropped = fresh('d'), pushed = fresh('p');
    const std::string set = fresh('s'), barrier = fresh('b');
    store.Wait(kA, {cancelled, cancelled});
    store.Cancel(kA);
    store.Wait(kA, {"other", dropped});
    store.Drop(kA);
    store.Wait(kA, {pushed});
    store.Push(kB, pushed, "job");
    store.Pop(kA, pushed);
    store.Wait(kA, {set});
    store.Set(kB, set, "");
    store.Delete(kB, set);
    store.Barrier(kA, barrier, 2);
    store.Cancel(kA);
    store.Delete(kA, barrier);
  };
  for (int i = 0; i < 100; ++i) round(i);  // tables and free lists reach their size
  const size_t before = mallinfo2().uordblks;
  for (int i = 100; i < 10'100; ++i) round(i);
  const size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + 1'000'000);
  EXPECT_EQ(store.Stats(), StoreMachineStats{});
}

TEST(StoreDropTest, Item112_DroppingAClientLeavesTheOthersAndTheDataAlone) {
  SpokenStore store;
  store.Set(kA, "mine", "1");
  store.Wait(kB, {"k"});
  EXPECT_EQ(store.Drop(kA), "-");
  EXPECT_EQ(store.Drop(kA), "-");
  EXPECT_EQ(store.Get(kC, "mine"), "'1'");
  EXPECT_EQ(store.Set(kC, "k", ""), "-, releases b");
}

// --- BARRIER

TEST(StoreBarrierTest, Item083_ABarrierOfOneReturnsAtOnce) {
  SpokenStore store;
  EXPECT_EQ(store.Barrier(kA, "b", 1), "go");
  EXPECT_EQ(store.Barrier(kA, "zero", 0), "go");
  EXPECT_EQ(store.Barrier(kA, "negative", -5), "go");
}

TEST(StoreBarrierTest, Item084_NobodyReturnsBeforeTheLastAndThenAllDo) {
  SpokenStore store;
  EXPECT_EQ(store.Barrier(kC, "b", 4), "-");
  EXPECT_EQ(store.Barrier(kA, "b", 4), "-");
  EXPECT_EQ(store.Barrier(kD, "b", 4), "-");
  EXPECT_EQ(store.Stats().parked_clients, 3u);
  EXPECT_EQ(store.Barrier(kB, "b", 4), "go, releases c a d");
  EXPECT_EQ(store.Stats().parked_clients, 0u);
}

TEST(StoreBarrierTest, Item085_AfterABarrierIsGivenUpTheClientGoesOn) {
  SpokenStore store;
  store.Barrier(kA, "b", 2);
  EXPECT_EQ(store.Cancel(kA), "cancelled");
  EXPECT_EQ(store.Set(kA, "k", "v"), "-");
  EXPECT_EQ(store.Get(kA, "k"), "'v'");
}

TEST(StoreBarrierTest, Item086_TheValueIsTheNumberOfArrivals) {
  SpokenStore store;
  for (const ClientId client : {kA, kB, kC}) store.Barrier(client, "b", 3);
  EXPECT_EQ(store.Get(kA, "b"), "'3'");
  EXPECT_EQ(store.ListKeys(kA), "['b']");
  EXPECT_EQ(store.NumKeys(kA), "1");
}

TEST(StoreBarrierTest, ASecondUseOfTheKeyReturnsAtOnce) {
  SpokenStore store;
  store.Barrier(kA, "b", 2);
  store.Barrier(kB, "b", 2);
  EXPECT_EQ(store.Barrier(kA, "b", 2), "go");
}

TEST(StoreBarrierTest, AParticipantThatGivesUpOrLeavesStaysCounted) {
  SpokenStore store;
  store.Barrier(kA, "b", 3);
  store.Cancel(kA);
  store.Barrier(kB, "b", 3);
  EXPECT_EQ(store.Drop(kB), "-");
  EXPECT_EQ(store.Barrier(kC, "b", 3), "go");
}

TEST(StoreBarrierTest, WritesToTheKeyDoNotLetParticipantsThrough) {
  SpokenStore store;
  store.Barrier(kA, "b", 3);
  EXPECT_EQ(store.Set(kD, "b", "1"), "-");
  EXPECT_EQ(store.Add(kD, "b", 0), "1");
  EXPECT_EQ(store.CompareSet(kD, "b", "1", "1"), "'1'");
  EXPECT_EQ(store.Append(kD, "b", " "), "-");
  EXPECT_EQ(store.Push(kD, "b", "element"), "-");
  EXPECT_EQ(store.Barrier(kB, "b", 3), "-");
  EXPECT_EQ(store.Barrier(kC, "b", 3), "go, releases a b");
}

TEST(StoreBarrierTest, DeletingAndRecreatingTheKeyDoesNotLetParticipantsThrough) {
  SpokenStore store;
  store.Barrier(kA, "b", 2);
  store.Delete(kD, "b");
  EXPECT_EQ(store.Set(kD, "b", "0"), "-");
  EXPECT_EQ(store.Barrier(kB, "b", 2), "-");
  EXPECT_EQ(store.Barrier(kC, "b", 2), "go, releases a b");
}

TEST(StoreBarrierTest, TheFirstArrivalReleasesAPlainWaitOnTheKey) {
  SpokenStore store;
  store.Wait(kA, {"b"});
  EXPECT_EQ(store.Barrier(kB, "b", 2), "-, releases a");
  EXPECT_EQ(store.Wait(kA, {"b"}), "go");
  EXPECT_EQ(store.Barrier(kC, "b", 2), "go, releases b");
}

TEST(StoreBarrierTest, BarriersOnOtherKeysAreUntouched) {
  SpokenStore store;
  store.Barrier(kA, "b", 2);
  store.Barrier(kB, "bb", 2);
  EXPECT_EQ(store.Barrier(kC, "b", 2), "go, releases a");
  EXPECT_EQ(store.Barrier(kD, "bb", 2), "go, releases b");
}

TEST(StoreBarrierTest, TheSmallestWorldSizeReachedReleasesEveryone) {
  SpokenStore store;
  store.Barrier(kA, "b", 5);
  EXPECT_EQ(store.Barrier(kB, "b", 2), "go, releases a");
}

TEST(StoreBarrierTest, ABarrierOnSomethingElseIsRefusedAndChangesNothing) {
  SpokenStore store;
  store.Set(kA, "b", "abc");
  EXPECT_EQ(store.Barrier(kA, "b", 1), kNotANumber);
  EXPECT_EQ(store.Get(kA, "b"), "'abc'");
  store.Set(kA, "b", "9223372036854775808");
  EXPECT_EQ(store.Barrier(kA, "b", 1), kOutOfRange);
  EXPECT_EQ(store.Stats().parked_clients, 0u);
}

}  // namespace
}  // namespace muster
