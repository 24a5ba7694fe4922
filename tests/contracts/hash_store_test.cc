// HashStore: what differs from the other stores.
#include "muster/hash_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/limits.h"
#include "support/errors.h"
#include "support/eventually.h"

namespace muster::test {

TEST(HashStoreTest, Item099_AGetThatTimesOutReportsWaitTimeout) {
  const auto store = HashStore::Create();
  store->SetTimeout(milliseconds(50));
  EXPECT_THAT(ErrorOf<StoreError>([&] { store->Get("k"); }), ::testing::HasSubstr("Wait timeout"));
}

TEST(HashStoreTest, Item088_ACloneIsTheSameObject) {
  const auto store = HashStore::Create();
  EXPECT_EQ(store->Clone(), store);
}

TEST(HashStoreTest, Item057_TheTimeoutIsFiveMinutesUntilSet) {
  EXPECT_EQ(HashStore::Create()->Timeout(), std::chrono::minutes(5));
}

TEST(HashStoreTest, Item021_ANumberThatDoesNotFitIsOutOfRange) {
  const auto store = HashStore::Create();
  store->Set("n", "-9223372036854775809");
  EXPECT_THROW(store->Add("n", 1), std::out_of_range);
  EXPECT_EQ(store->Get("n"), "-9223372036854775809");
}

// The store reports what it refuses, instead of returning nothing.

TEST(HashStoreTest, Item061_AMultiGetOfMoreThanOneAnswerHoldsIsRefused) {
  const auto store = HashStore::Create();
  store->Set("k", std::string(64 << 20, 'v'));
  EXPECT_THAT(ErrorOf<StoreError>([&] { store->MultiGet(std::vector<std::string>(17, "k")); }),
              ::testing::AllOf(::testing::HasSubstr("MultiGet of 17 keys"),
                               ::testing::HasSubstr("limit"), ::testing::HasSubstr("256 MiB")));
  EXPECT_EQ(store->Get("k").size(), 64u << 20);
}

TEST(HashStoreTest, AGetOfMoreThanOneAnswerHoldsIsRefused) {
  const auto store = HashStore::Create();
  store->Set("k", std::string(kReplyBytesMax + 1, 'v'));
  EXPECT_THAT(ErrorOf<StoreError>([&] { store->Get("k"); }), ::testing::HasSubstr("limit"));
}

TEST(HashStoreTest, Item080_AListOfMoreKeysThanOneAnswerHoldsIsRefused) {
  const auto store = HashStore::Create();
  std::string key(64 << 20, 'k');
  for (int i = 0; i < 5; ++i) {
    key.back() = static_cast<char>('a' + i);
    store->Set(key, "");
  }
  EXPECT_THAT(ErrorOf<StoreError>([&] { store->ListKeys(); }),
              ::testing::AllOf(::testing::HasSubstr("ListKeys"), ::testing::HasSubstr("256 MiB")));
  EXPECT_EQ(store->GetNumKeys(), 5);
}

TEST(HashStoreTest, Item041_AWaitForMoreKeysThanMayBeWaitedForIsRefusedAtOnce) {
  const auto store = HashStore::Create();
  const std::vector<std::string> keys(kWaitedKeysMax + 1, "k");
  const std::string text = ErrorOf<StoreError>([&] { store->Wait(keys, milliseconds(1000)); });
  EXPECT_THAT(text, ::testing::HasSubstr("Wait for 16777217 keys"));
  EXPECT_THAT(text, ::testing::HasSubstr("limit"));
}

TEST(HashStoreTest, Item013_StoresAreApart) {
  const auto one = HashStore::Create();
  const auto other = HashStore::Create();
  one->Set("k", "v");
  EXPECT_FALSE(other->Check({"k"}));
}

}  // namespace muster::test
