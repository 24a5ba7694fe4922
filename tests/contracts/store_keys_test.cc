// Listing, barriers and clones in one thread.
#include <algorithm>

#include "contracts/store_contract.h"

namespace muster::test {

using ::testing::ContainsRegex;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class KeysContract : public StoreContract {};
INSTANTIATE_TEST_SUITE_P(Stores, KeysContract, ::testing::ValuesIn(AllStores()), KindName);

TEST_P(KeysContract, Item080_AllKeysAreListedAndNothingElse) {
  const auto store = Open();
  store->Set("a", "1");
  store->Add("b/c", 1);
  store->Append("d", "x");
  store->CompareSet("e", "", "y");
  store->MultiSet({"f", "g"}, {"", ""});
  EXPECT_THAT(store->ListKeys(), UnorderedElementsAre("a", "b/c", "d", "e", "f", "g"));
  store->DeleteKey("d");
  store->Set("a", "again");
  EXPECT_THAT(Open()->ListKeys(), UnorderedElementsAre("a", "b/c", "e", "f", "g"));
}

TEST_P(KeysContract, Item081_AnEmptyStoreHasNoKeysToList) {
  const auto store = Open();
  EXPECT_THAT(store->ListKeys(), IsEmpty());
  store->Set("k", "v");
  store->DeleteKey("k");
  EXPECT_THAT(store->ListKeys(), IsEmpty());
}

TEST_P(KeysContract, Item080_ManyKeysAreListed) {
  const auto store = Open();
  std::vector<std::string> keys;
  for (int i = 0; i < 2000; ++i) keys.push_back("key" + std::to_string(i));
  store->MultiSet(keys, std::vector<std::string>(keys.size(), "v"));
  std::vector<std::string> listed = store->ListKeys();
  std::sort(keys.begin(), keys.end());
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(listed, keys);
}

TEST_P(KeysContract, Item083_ABarrierOfOneReturnsAtOnce) {
  const auto store = Open();
  store->Barrier("one", 1);
  store->Barrier("another", 1, milliseconds(5'000));
}

TEST_P(KeysContract, Item083_ABarrierOfZeroClientsReturnsAtOnce) {
  const auto store = Open();
  store->Barrier("none", 0, milliseconds(5'000));
}

TEST_P(KeysContract, Item085_ABarrierThatNoOtherClientReachesTimesOut) {
  const auto store = Open();
  const Stopwatch watch;
  const std::string text =
      ErrorOf<StoreTimeoutError>([&] { store->Barrier("b", 2, milliseconds(100)); });
  EXPECT_GE(watch.Elapsed(), milliseconds(100));
  EXPECT_THAT(text, ContainsRegex("barrier timeout after 100ms, key: b"));
  store->Set("k", "still usable");
  EXPECT_EQ(store->Get("k"), "still usable");
}

TEST_P(KeysContract, Item085_WithoutATimeoutOfItsOwnABarrierUsesTheStores) {
  const auto store = Open();
  store->SetTimeout(milliseconds(100));
  const Stopwatch watch;
  EXPECT_THROW(store->Barrier("b", 2), StoreTimeoutError);
  EXPECT_GE(watch.Elapsed(), milliseconds(100));
  EXPECT_LT(watch.Elapsed(), milliseconds(10'000));
}

TEST_P(KeysContract, Item085_AClientThatTimedOutStaysCounted) {
  const auto store = Open();
  EXPECT_THROW(store->Barrier("b", 2, milliseconds(50)), StoreTimeoutError);
  store->Barrier("b", 2);
}

TEST_P(KeysContract, Item086_TheBarrierCountsItsArrivals) {
  const auto store = Open();
  EXPECT_THROW(store->Barrier("b", 3, milliseconds(50)), StoreTimeoutError);
  EXPECT_THROW(store->Barrier("b", 3, milliseconds(50)), StoreTimeoutError);
  store->Barrier("b", 3);
  if (facts().counts_barrier_at_key) {
    EXPECT_EQ(store->Get("b"), "3");
    EXPECT_THAT(store->ListKeys(), UnorderedElementsAre("b"));
  } else {
    EXPECT_EQ(store->Get("b/num_members"), "3");
    EXPECT_THAT(store->ListKeys(), UnorderedElementsAre("b/num_members", "b/last_member"));
  }
}

TEST_P(KeysContract, Item086_ABarrierThatHasBeenPassedIsOpen) {
  const auto store = Open();
  store->Barrier("b", 1);
  store->Barrier("b", 1);
  store->Barrier("b", 2);
}

TEST_P(KeysContract, Item088_ACloneIsTheSameData) {
  const auto store = Open();
  store->Set("k", "before");
  const auto clone = store->Clone();
  Settle(*store);
  EXPECT_EQ(clone->Get("k"), "before");
  clone->Set("k", "after");
  Settle(*clone);
  EXPECT_EQ(store->Get("k"), "after");
  EXPECT_EQ(clone->Add("n", 1), 1);
  EXPECT_EQ(store->Add("n", 1), 2);
}

TEST_P(KeysContract, Item088_ACloneHasTheTimeoutOfItsOriginal) {
  const auto store = Open();
  store->SetTimeout(milliseconds(61'234));
  EXPECT_EQ(store->Clone()->Timeout(), milliseconds(61'234));
}

TEST_P(KeysContract, Item088_ACloneOutlivesItsOriginal) {
  auto store = Open();
  store->Set("k", "v");
  Settle(*store);
  const auto clone = store->Clone();
  const auto clone_of_clone = clone->Clone();
  store.reset();
  EXPECT_EQ(clone->Get("k"), "v");
  EXPECT_EQ(clone_of_clone->Get("k"), "v");
}

TEST_P(KeysContract, Item088_ACloneThatTimedOutDoesNotDisturbItsOriginal) {
  const auto store = Open();
  const auto clone = store->Clone();
  EXPECT_THROW(clone->Wait({"missing"}, milliseconds(50)), StoreTimeoutError);
  store->Set("k", "v");
  EXPECT_EQ(store->Get("k"), "v");
}

}  // namespace muster::test
