// Values: a read returns what was set, counters count, deleted keys are gone.
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "contracts/store_contract.h"

namespace muster::test {

using namespace std::string_literals;
using ::testing::UnorderedElementsAre;

class ValuesContract : public StoreContract {};
INSTANTIATE_TEST_SUITE_P(Stores, ValuesContract, ::testing::ValuesIn(AllStores()), KindName);

TEST_P(ValuesContract, Item013_GetReturnsTheBytesThatWereSet) {
  const auto store = Open();
  for (const std::string& value : {"plain"s, ""s, "nul\0inside"s, "\xff\xfe\0\x80"s, "\n\r\t"s}) {
    store->Set("k", value);
    EXPECT_EQ(store->Get("k"), value);
  }
}

TEST_P(ValuesContract, Item013_EveryByteSurvives) {
  const auto store = Open();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  store->Set("k", all);
  EXPECT_EQ(store->Get("k"), all);
}

TEST_P(ValuesContract, Item013_AMebibyteSurvives) {
  const auto store = Open();
  std::string large(1024 * 1024, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 + (i >> 10));
  store->Set("k", large);
  EXPECT_TRUE(store->Get("k") == large);  // not EXPECT_EQ, which would print both values
}

TEST_P(ValuesContract, Item014_TheSecondSetWins) {
  const auto store = Open();
  store->Set("k", "a longer first value");
  store->Set("k", "second");
  EXPECT_EQ(store->Get("k"), "second");
  EXPECT_EQ(Open()->Get("k"), "second");
}

TEST_P(ValuesContract, Item015_AnEmptyValueIsThereAndIsNotWaitedFor) {
  const auto store = Open();
  store->Set("k", "");
  const Stopwatch watch;
  EXPECT_EQ(store->Get("k"), "");
  EXPECT_TRUE(store->Check({"k"}));
  EXPECT_LT(watch.Elapsed(), kPatience / 2);
}

TEST_P(ValuesContract, Item016_AddCountsFromZeroAndReturnsTheSum) {
  const auto store = Open();
  EXPECT_EQ(store->Add("n", 1), 1);
  EXPECT_EQ(store->Add("n", 2), 3);
  EXPECT_EQ(store->Add("n", 3), 6);
  EXPECT_EQ(store->Get("n"), "6");
}

TEST_P(ValuesContract, Item017_OneToSixMakeTwentyOne) {
  const auto store = Open();
  const auto other = Open();
  for (int64_t delta = 1; delta <= 6; ++delta) (delta % 2 == 0 ? other : store)->Add("n", delta);
  EXPECT_EQ(store->Get("n"), "21");
}

TEST_P(ValuesContract, Item018_ASumBelowZeroIsStoredWithASign) {
  const auto store = Open();
  EXPECT_EQ(store->Add("n", 5), 5);
  EXPECT_EQ(store->Add("n", -7), -2);
  EXPECT_EQ(store->Get("n"), "-2");
  EXPECT_EQ(store->Add("n", 2), 0);
  EXPECT_EQ(store->Get("n"), "0");
}

TEST_P(ValuesContract, Item019_AddOfZeroCreatesTheCounter) {
  const auto store = Open();
  EXPECT_EQ(store->Add("n", 0), 0);
  EXPECT_TRUE(store->Check({"n"}));
  EXPECT_EQ(store->Get("n"), "0");
}

TEST_P(ValuesContract, Item020_AddReadsDigitsAndIgnoresWhatFollows) {
  const auto store = Open();
  store->Set("n", "12abc");
  EXPECT_EQ(store->Add("n", 1), 13);
  EXPECT_EQ(store->Get("n"), "13");
  store->Set("n", " \t+40 apples");
  EXPECT_EQ(store->Add("n", 2), 42);
  EXPECT_EQ(store->Get("n"), "42");
}

TEST_P(ValuesContract, Item020_CountersReachTheEndsOfInt64) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const auto store = Open();
  EXPECT_EQ(store->Add("high", kMax), kMax);
  EXPECT_EQ(store->Get("high"), std::to_string(kMax));
  EXPECT_EQ(store->Add("low", kMin), kMin);
  EXPECT_EQ(store->Get("low"), std::to_string(kMin));
}

TEST_P(ValuesContract, Item021_AddToTextFailsAndLeavesItAlone) {
  const auto store = Open();
  const auto victim = Open();
  store->Set("n", "abc");
  Settle(*store);
  if (facts().bad_add_ends_connection) {
    EXPECT_THROW(victim->Add("n", 1), NetworkError);
    EXPECT_THROW(victim->Check({"n"}), NetworkError);  // and stays lost
  } else {
    EXPECT_THROW(victim->Add("n", 1), std::invalid_argument);
    EXPECT_TRUE(victim->Check({"n"}));
  }
  EXPECT_EQ(store->Get("n"), "abc");
}

TEST_P(ValuesContract, Item021_AddToANumberBeyondInt64FailsAndLeavesItAlone) {
  const auto store = Open();
  const auto victim = Open();
  store->Set("n", "9223372036854775808");
  Settle(*store);
  if (facts().bad_add_ends_connection) {
    EXPECT_THROW(victim->Add("n", 1), NetworkError);
  } else {
    EXPECT_ANY_THROW(victim->Add("n", 1));
  }
  EXPECT_EQ(store->Get("n"), "9223372036854775808");
}

TEST_P(ValuesContract, Item022_AddToAnEmptyValueCountsFromZeroOrFails) {
  const auto store = Open();
  const auto other = Open();
  store->Set("n", "");
  Settle(*store);
  if (facts().empty_counts_as_zero) {
    EXPECT_EQ(other->Add("n", 1), 1);
    EXPECT_EQ(store->Get("n"), "1");
  } else {
    EXPECT_THROW(other->Add("n", 1), NetworkError);
    EXPECT_EQ(store->Get("n"), "");
  }
}

TEST_P(ValuesContract, Item023_ADeletedKeyIsGone) {
  const auto store = Open();
  store->Set("k", "v");
  EXPECT_TRUE(store->DeleteKey("k"));
  EXPECT_FALSE(store->Check({"k"}));
}

TEST_P(ValuesContract, Item023_DeletingAnAbsentKeyIsReportedIfTheStoreKnows) {
  const auto store = Open();
  EXPECT_EQ(store->DeleteKey("never there"), !facts().delete_tells_the_truth);
}

TEST_P(ValuesContract, Item023_ADeletedKeyCanBeSetAgain) {
  const auto store = Open();
  store->Set("k", "before");
  store->DeleteKey("k");
  EXPECT_EQ(store->Add("k", 3), 3);
  store->DeleteKey("k");
  store->Append("k", "after");
  EXPECT_EQ(store->Get("k"), "after");
}

TEST_P(ValuesContract, Item024_KeysAreCounted) {
  const auto store = Open();
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys);
  for (const char* key : {"key", "key0", "key1", "key2", "key3"}) store->Set(key, "v");
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys + 5);
  store->Set("key", "once more");
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys + 5);
}

TEST_P(ValuesContract, Item026_DeletingLowersTheCountOnlyIfThereWasAKey) {
  const auto store = Open();
  store->Set("a", "1");
  store->Set("b", "2");
  store->DeleteKey("a");
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys + 1);
  store->DeleteKey("a");
  store->DeleteKey("never there");
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys + 1);
}

TEST_P(ValuesContract, Item027_AKeyWithALeadingMinusIsAKeyLikeAnyOther) {
  const auto store = Open();
  store->Set("-key3", "7");
  store->Set("key3", "other");
  EXPECT_EQ(store->Get("-key3"), "7");
  EXPECT_TRUE(store->DeleteKey("key3"));
  EXPECT_EQ(store->Get("-key3"), "7");
  EXPECT_EQ(store->Add("-key3", 1), 8);
  EXPECT_TRUE(store->DeleteKey("-key3"));
  EXPECT_FALSE(store->Check({"-key3"}));
}

TEST_P(ValuesContract, Item028_KeysMayContainAnything) {
  const std::vector<std::string> keys = {"a/b/c",      "/leading",  "trailing/", "//",
                                         "with space", "schlüssel", "\x80\xff",  "nul\0in"s,
                                         "tab\tnl\n",  "init/",     "refcount/", "-/x"};
  const auto store = Open();
  for (const std::string& key : keys) store->Set(key, "value of " + key);
  const auto other = Open();
  Settle(*store);
  for (const std::string& key : keys) {
    EXPECT_TRUE(other->Check({key})) << key;
    EXPECT_EQ(other->Get(key), "value of " + key);
  }
  EXPECT_THAT(other->ListKeys(), ::testing::UnorderedElementsAreArray(keys));
}

TEST_P(ValuesContract, Item028_KeysThatBeginAlikeAreDifferent) {
  const auto store = Open();
  store->Set("k", "1");
  store->Set("k/k", "2");
  store->Set("kk", "3");
  EXPECT_TRUE(store->DeleteKey("k"));
  EXPECT_EQ(store->Get("k/k"), "2");
  EXPECT_EQ(store->Get("kk"), "3");
}

TEST_P(ValuesContract, Item029_TheEmptyKeyIsLegal) {
  const auto store = Open();
  EXPECT_FALSE(store->Check({""}));
  store->Set("", "nameless");
  EXPECT_EQ(store->Get(""), "nameless");
  EXPECT_THAT(store->ListKeys(), UnorderedElementsAre(""));
  EXPECT_TRUE(store->DeleteKey(""));
  EXPECT_FALSE(store->Check({""}));
}

TEST_P(ValuesContract, Item014_WhatOneHandleWritesTheOthersRead) {
  const auto writer = Open();
  const auto reader = Open();
  for (int i = 0; i < 100; ++i) {
    writer->Set("k", std::to_string(i));
    Settle(*writer);
    EXPECT_EQ(reader->Get("k"), std::to_string(i));
  }
}

}  // namespace muster::test
