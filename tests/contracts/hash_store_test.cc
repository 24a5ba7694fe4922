// HashStore: what it does not share with the others.
#include "muster/hash_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "support/errors.h"

namespace muster::test {

TEST(HashStoreTest, Item099_AGetThatTimesOutSaysWaitTimeout) {
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

TEST(HashStoreTest, Item013_StoresAreApart) {
  const auto one = HashStore::Create();
  const auto other = HashStore::Create();
  one->Set("k", "v");
  EXPECT_FALSE(other->Check({"k"}));
}

}  // namespace muster::test
