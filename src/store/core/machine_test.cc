// What the store machine replies, one small story at a time. ItemNNN is the item of the conformance
// checklist that a story shows; docs/reference/protocol.md describes the rest.
#include "store/core/machine.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/text.h"
#include "support/machine_test_words.h"

namespace muster {
namespace {

using namespace testing_words;  // NOLINT: it is the vocabulary of this file

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr int64_t kSmallest = std::numeric_limits<int64_t>::min();

// --- Handshake

TEST(StoreMachineTest, Item001_PingAnswersWithItsNonce) {
  SpokenStore store;
  EXPECT_EQ(store.Ask(kA, {.op = Op::kPing, .number = 0xfffffffe}), "4294967294");
}

TEST(StoreMachineTest, Item008_ValidateIsNotARequest) {
  SpokenStore store;
  EXPECT_EQ(store.Ask(kA, {.op = Op::kValidate}), kMisplaced);
}

// --- Keys and values

TEST(StoreMachineTest, Item013_GetReturnsTheBytesThatWereSet) {
  SpokenStore store;
  for (const std::string_view value :
       {std::string_view("\0\xff\n", 3), std::string_view(), std::string_view("v")}) {
    EXPECT_EQ(store.Set(kA, "k", value), "-");
    EXPECT_EQ(store.Get(kB, "k"), Concat("'", value, "'"));
  }
}

TEST(StoreMachineTest, Item014_TheSecondSetWins) {
  SpokenStore store;
  store.Set(kA, "k", "a long first value");
  store.Set(kB, "k", "2");
  EXPECT_EQ(store.Get(kA, "k"), "'2'");
}

TEST(StoreMachineTest, GetOfAnAbsentKeyIsAnEmptyValue) {
  EXPECT_EQ(SpokenStore().Get(kA, "k"), "''");
}

// The wire does not carry the difference; stores inside one process do.
TEST(StoreMachineTest, GetTellsAnEmptyValueFromAnAbsentKey) {
  StoreMachine machine;
  Released released;
  const Request get{.op = Op::kGet, .key = "k"};
  EXPECT_EQ(machine.Step(kA, get, Instant{}, released).number, 0);
  machine.Step(kA, {.op = Op::kSet, .key = "k"}, Instant{}, released);
  EXPECT_EQ(machine.Step(kA, get, Instant{}, released).number, 1);
}

TEST(StoreMachineTest, Item015_AnEmptyValueIsThereWithoutWaiting) {
  SpokenStore store;
  store.Set(kA, "k", "");
  EXPECT_EQ(store.Wait(kB, {"k"}), "go");
  EXPECT_EQ(store.Get(kB, "k"), "''");
}

TEST(StoreMachineTest, Item023_DeleteRemovesAKeyOnce) {
  SpokenStore store;
  store.Set(kA, "k", "v");
  EXPECT_EQ(store.Delete(kB, "k"), "1");
  EXPECT_EQ(store.Check(kA, {"k"}), "not ready");
  EXPECT_EQ(store.Delete(kB, "k"), "0");
}

TEST(StoreMachineTest, Item025_NumKeysStartsAtZero) { EXPECT_EQ(SpokenStore().NumKeys(kA), "0"); }

TEST(StoreMachineTest, Item026_OnlyDeletingAPresentKeyLowersNumKeys) {
  SpokenStore store;
  store.MultiSet(kA, {"k", "l"}, {"1", "2"});
  store.Delete(kA, "absent");
  EXPECT_EQ(store.NumKeys(kA), "2");
  store.Delete(kA, "k");
  EXPECT_EQ(store.NumKeys(kA), "1");
}

TEST(StoreMachineTest, Item027_AKeyThatLooksLikeAnOptionIsAKey) {
  SpokenStore store;
  store.Set(kA, "-key3", "v");
  EXPECT_EQ(store.Get(kA, "-key3"), "'v'");
}

TEST(StoreMachineTest, Item028_AnyBytesAreAKey) {
  SpokenStore store;
  const Keys keys = {"/a/b c", "/größe", "\x80\xff", std::string_view("a\0b", 3), "a", "a\n"};
  for (const std::string_view key : keys) store.Set(kA, key, Concat("value of ", key));
  for (const std::string_view key : keys)
    EXPECT_EQ(store.Get(kB, key), Concat("'value of ", key, "'"));
  EXPECT_EQ(store.NumKeys(kA), Concat(keys.size()));
}

TEST(StoreMachineTest, Item029_TheEmptyKeyIsAKey) {
  SpokenStore store;
  store.Set(kA, "", "v");
  EXPECT_EQ(store.Get(kA, ""), "'v'");
  EXPECT_EQ(store.Delete(kA, ""), "1");
}

TEST(StoreMachineTest, Item080_ListKeysNamesEveryEntryAsItWasSpelled) {
  SpokenStore store;
  store.Add(kA, "init/", 1);
  store.Set(kA, "/k", "v");
  store.Push(kA, "/q", "e");
  EXPECT_EQ(store.ListKeys(kA), "['/k' 'init/']");
}

TEST(StoreMachineTest, Item081_ListKeysOfAnEmptyStoreIsEmpty) {
  EXPECT_EQ(SpokenStore().ListKeys(kA), "[]");
}

// --- ADD

TEST(StoreMachineTest, Item016_AddReturnsTheSumAndStoresItInDecimal) {
  SpokenStore store;
  EXPECT_EQ(store.Add(kA, "n", 1), "1");
  EXPECT_EQ(store.Add(kB, "n", 2), "3");
  EXPECT_EQ(store.Add(kA, "n", 3), "6");
  EXPECT_EQ(store.Get(kA, "n"), "'6'");
}

TEST(StoreMachineTest, Item017_AddsOfOneToSixSumToTwentyOne) {
  SpokenStore store;
  for (const int64_t delta : {1, 2, 3, 4, 5, 6}) store.Add(kA, "n", delta);
  EXPECT_EQ(store.Get(kA, "n"), "'21'");
}

TEST(StoreMachineTest, Item018_AddBelowZeroStoresAMinusSign) {
  SpokenStore store;
  EXPECT_EQ(store.Add(kA, "n", 5), "5");
  EXPECT_EQ(store.Add(kA, "n", -7), "-2");
  EXPECT_EQ(store.Get(kA, "n"), "'-2'");
}

TEST(StoreMachineTest, Item019_AddOfZeroCreatesTheKey) {
  SpokenStore store;
  EXPECT_EQ(store.Add(kA, "n", 0), "0");
  EXPECT_EQ(store.Get(kA, "n"), "'0'");
}

TEST(StoreMachineTest, Item020_AddReadsTheLeadingNumber) {
  SpokenStore store;
  for (const std::string_view value : {"12abc", " 12", "+12", "012", "\t\n12 13"}) {
    store.Set(kA, "n", value);
    EXPECT_EQ(store.Add(kA, "n", 1), "13") << value;
    EXPECT_EQ(store.Get(kA, "n"), "'13'");
  }
}

TEST(StoreMachineTest, Item021_AddToSomethingElseIsRefusedAndChangesNothing) {
  SpokenStore store;
  store.Set(kA, "n", "abc");
  EXPECT_EQ(store.Add(kA, "n", 1), kNotANumber);
  EXPECT_EQ(store.Get(kB, "n"), "'abc'");
}

TEST(StoreMachineTest, Item022_AddToAnEmptyValueIsRefused) {
  SpokenStore store;
  store.Set(kA, "n", "");
  EXPECT_EQ(store.Add(kA, "n", 1), kNotANumber);
  EXPECT_EQ(store.Get(kB, "n"), "''");
}

TEST(StoreMachineTest, Item022_AnEmptyValueCountsAsZeroWhereAskedFor) {
  SpokenStore store({.empty_counts_as_zero = true});
  store.Set(kA, "n", "");
  EXPECT_EQ(store.Add(kA, "n", 1), "1");
  store.Set(kA, "n", " ");
  EXPECT_EQ(store.Add(kA, "n", 1), kNotANumber);
}

TEST(StoreMachineTest, AddToANumberBeyondSixtyFourBitsIsRefused) {
  SpokenStore store;
  for (const std::string_view value : {"9223372036854775808", "-9223372036854775809"}) {
    store.Set(kA, "n", value);
    EXPECT_EQ(store.Add(kA, "n", 1), kOutOfRange);
    EXPECT_EQ(store.Get(kA, "n"), Concat("'", value, "'"));
  }
}

TEST(StoreMachineTest, AddWrapsInTwosComplement) {
  SpokenStore store;
  store.Add(kA, "n", kLargest);
  EXPECT_EQ(store.Add(kA, "n", 1), Concat(kSmallest));
  EXPECT_EQ(store.Add(kA, "n", -1), Concat(kLargest));
  EXPECT_EQ(store.Add(kA, "m", kSmallest), Concat(kSmallest));
  EXPECT_EQ(store.Add(kA, "m", kSmallest), "0");
}

// --- COMPARE_SET

TEST(StoreMachineTest, Item030_CompareSetOfAnAbsentKeyReturnsTheExpectation) {
  SpokenStore store;
  EXPECT_EQ(store.CompareSet(kA, "k", "wrong_old_value", "new"), "'wrong_old_value'");
  EXPECT_EQ(store.Check(kA, {"k"}), "not ready");
  EXPECT_EQ(store.NumKeys(kA), "0");
}

TEST(StoreMachineTest, Item031_CompareSetExpectingNothingCreates) {
  SpokenStore store;
  EXPECT_EQ(store.CompareSet(kA, "k", "", "new"), "'new'");
  EXPECT_EQ(store.Get(kA, "k"), "'new'");
}

TEST(StoreMachineTest, Item032_CompareSetThatDoesNotMatchReturnsTheCurrentValue) {
  SpokenStore store;
  store.Set(kA, "k", "zz");
  EXPECT_EQ(store.CompareSet(kA, "k", "old", "new"), "'zz'");
  EXPECT_EQ(store.CompareSet(kA, "k", "zzz", "new"), "'zz'");
  EXPECT_EQ(store.CompareSet(kA, "k", "z", "new"), "'zz'");
  EXPECT_EQ(store.Get(kA, "k"), "'zz'");
}

TEST(StoreMachineTest, Item033_CompareSetThatMatchesReplaces) {
  SpokenStore store;
  const std::string_view old("o\0ld", 4);
  store.Set(kA, "k", old);
  EXPECT_EQ(store.CompareSet(kA, "k", "o", "no"), Concat("'", old, "'"));
  EXPECT_EQ(store.CompareSet(kA, "k", old, "new"), "'new'");
  EXPECT_EQ(store.Get(kB, "k"), "'new'");
}

TEST(StoreMachineTest, Item034_CompareSetExpectingNothingLeavesAValueAlone) {
  SpokenStore store;
  store.Set(kA, "k", "v");
  EXPECT_EQ(store.CompareSet(kA, "k", "", "new"), "'v'");
  EXPECT_EQ(store.Get(kA, "k"), "'v'");
}

TEST(StoreMachineTest, Item035_CompareSetExpectingNothingReplacesAnEmptyValue) {
  SpokenStore store;
  store.Set(kA, "k", "");
  EXPECT_EQ(store.CompareSet(kA, "k", "", "new"), "'new'");
  EXPECT_EQ(store.Get(kA, "k"), "'new'");
}

TEST(StoreMachineTest, Item036_CompareSetThatCreatesReleasesWaiters) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  EXPECT_EQ(store.CompareSet(kB, "k", "", "v"), "'v', releases a");
}

TEST(StoreMachineTest, Item037_CompareSetThatFailsReleasesNobody) {
  SpokenStore store;
  store.Wait(kA, {"k"});
  EXPECT_EQ(store.CompareSet(kB, "k", "old", "new"), "'old'");
  EXPECT_EQ(store.Set(kB, "k", "v"), "-, releases a");
}

TEST(StoreMachineTest, Item038_InterleavedCompareSetsLoseNoUpdate) {
  SpokenStore store;
  store.Set(kA, "n", "0");
  // In every round all four read the same value; one increment succeeds, the others are too late.
  for (int round = 0; round < 100; ++round) {
    const std::string seen = Concat(round), next = Concat(round + 1);
    for (const ClientId client : {kA, kB, kC, kD}) {
      EXPECT_EQ(store.CompareSet(client, "n", seen, next), Concat("'", next, "'"));
    }
  }
  EXPECT_EQ(store.Get(kA, "n"), "'100'");
}

TEST(StoreMachineTest, ALargeValueMayBeginWithANumber) {
  SpokenStore store;
  store.Set(kA, "n", "53-" + std::string(8'000, 'x'));
  EXPECT_EQ(store.Add(kA, "n", 1), "54");
  EXPECT_EQ(store.Get(kA, "n"), "'54'");
  store.Append(kA, "n", std::string(8'000, 'x'));  // a short piece, and a long one
  EXPECT_EQ(store.Add(kA, "n", 1), "55");
  store.Set(kA, "n", std::string(8'000, 'x'));
  EXPECT_EQ(store.Add(kA, "n", 1), kNotANumber);
  store.Set(kA, "n", std::string(8'000, '0'));
  EXPECT_NE(store.Add(kA, "n", 1), "1") << "its end would have to be read";
}

// --- APPEND, MULTI_GET, MULTI_SET

TEST(StoreMachineTest, Item058_AppendContinuesAValueOrCreatesIt) {
  SpokenStore store;
  store.Set(kA, "foo", "po");
  store.Append(kA, "foo", "tato");
  store.Append(kA, "bar", "po");
  store.Append(kA, "bar", "tato");
  EXPECT_EQ(store.MultiGet(kA, {"foo", "bar"}), "['potato' 'potato']");
}

TEST(StoreMachineTest, Item059_AppendOfTheValueItselfDoublesIt) {
  SpokenStore store;
  store.Append(kA, "k", "ab");
  store.Append(kA, "k", "ab");
  EXPECT_EQ(store.Get(kA, "k"), "'abab'");
}

TEST(StoreMachineTest, Item060_MultiGetReturnsWhatMultiSetStored) {
  SpokenStore store;
  EXPECT_EQ(store.MultiSet(kA, {"foo", "bar"}, {"po", "tato"}), "-");
  EXPECT_EQ(store.MultiGet(kB, {"foo", "bar"}), "['po' 'tato']");
}

TEST(StoreMachineTest, Item061_MultiGetKeepsTheOrderAndRepeats) {
  SpokenStore store;
  store.MultiSet(kA, {"foo", "bar"}, {"po", "tato"});
  EXPECT_EQ(store.MultiGet(kB, {"bar", "foo", "bar"}), "['tato' 'po' 'tato']");
}

TEST(StoreMachineTest, TheLastOfDuplicatesInAMultiSetWins) {
  SpokenStore store;
  store.MultiSet(kA, {"k", "l", "k"}, {"1", "2", "3"});
  EXPECT_EQ(store.MultiGet(kA, {"k", "l"}), "['3' '2']");
}

TEST(StoreMachineTest, Item065_MultiGetHasAnEmptyValueForAnAbsentKey) {
  SpokenStore store;
  store.Set(kA, "k", "v");
  EXPECT_EQ(store.MultiGet(kA, {"absent", "k"}), "['' 'v']");
}

TEST(StoreMachineTest, Item066_MultiOperationsOnNothingDoNothing) {
  SpokenStore store;
  EXPECT_EQ(store.MultiSet(kA, {}, {}), "-");
  EXPECT_EQ(store.MultiGet(kA, {}), "[]");
  EXPECT_EQ(store.NumKeys(kA), "0");
}

// --- Limits of the machine

TEST(StoreMachineTest, Item116_AppendGrowsAValueBeyondWhatOneRequestMayCarry) {
  SpokenStore store;
  const std::string part(kValueBytesMax, 'x');
  for (int i = 0; i < 3; ++i) store.Append(kA, "k", part);
  EXPECT_EQ(store.Get(kA, "k").size(), 3 * kValueBytesMax + 2);
}

TEST(StoreMachineTest, AppendBeyondTheReplyLimitIsRefusedAndChangesNothing) {
  SpokenStore store({.reply_bytes_max = 4});
  store.Append(kA, "k", "abc");
  EXPECT_EQ(store.Append(kA, "k", "d"), "-");
  EXPECT_EQ(store.Append(kA, "k", "e"), kTooMuch);
  EXPECT_EQ(store.Get(kA, "k"), "'abcd'");
}

TEST(StoreMachineTest, RepliesBeyondTheLimitAreRefused) {
  SpokenStore store({.reply_bytes_max = 4});
  store.MultiSet(kA, {"k", "long"}, {"ab", "c"});
  EXPECT_EQ(store.MultiGet(kA, {"k", "k"}), "['ab' 'ab']");
  EXPECT_EQ(store.MultiGet(kA, {"k", "k", "long"}), kTooMuch);
  EXPECT_EQ(store.ListKeys(kA), kTooMuch);
  store.Delete(kA, "k");
  EXPECT_EQ(store.ListKeys(kA), "['long']");
}

TEST(StoreMachineTest, WaitsForMoreKeysThanTheLimitAreRefusedUntilOthersEnd) {
  SpokenStore store({.waited_keys_max = 3});
  EXPECT_EQ(store.Wait(kA, {"1", "2"}), "-");
  EXPECT_EQ(store.Wait(kB, {"3", "4"}), kTooMuch);
  EXPECT_EQ(store.Wait(kB, {"3"}), "-");
  EXPECT_EQ(store.Wait(kC, {"5"}), kTooMuch);
  store.Cancel(kA);
  EXPECT_EQ(store.Wait(kC, {"5", "6"}), "-");
}

}  // namespace
}  // namespace muster
