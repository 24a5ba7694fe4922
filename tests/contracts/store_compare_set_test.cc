// CompareSet: all six rows of its table.
#include "contracts/store_contract.h"

namespace muster::test {

class CompareSetContract : public StoreContract {};
INSTANTIATE_TEST_SUITE_P(Stores, CompareSetContract, ::testing::ValuesIn(AllStores()), KindName);

TEST_P(CompareSetContract, Item030_AnAbsentKeyGivesTheExpectationBackAndStaysAbsent) {
  const auto store = Open();
  EXPECT_EQ(store->CompareSet("k", "wrong_old_value", "new"), "wrong_old_value");
  EXPECT_FALSE(store->Check({"k"}));
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys);
}

TEST_P(CompareSetContract, Item031_AnAbsentKeyEqualsAnEmptyExpectation) {
  const auto store = Open();
  EXPECT_EQ(store->CompareSet("k", "", "created"), "created");
  EXPECT_EQ(store->Get("k"), "created");
}

TEST_P(CompareSetContract, Item032_AMismatchChangesNothingAndTellsTheValue) {
  const auto store = Open();
  store->Set("k", "current");
  EXPECT_EQ(store->CompareSet("k", "expected", "desired"), "current");
  EXPECT_EQ(store->Get("k"), "current");
}

TEST_P(CompareSetContract, Item033_AMatchReplaces) {
  const auto store = Open();
  store->Set("k", "old");
  EXPECT_EQ(store->CompareSet("k", "old", "new"), "new");
  EXPECT_EQ(store->Get("k"), "new");
}

TEST_P(CompareSetContract, Item033_AMatchIsBytewise) {
  const auto store = Open();
  const std::string with_nul("a\0b", 3);
  store->Set("k", with_nul);
  EXPECT_EQ(store->CompareSet("k", "a", "wrong"), with_nul);
  EXPECT_EQ(store->CompareSet("k", std::string("a\0c", 3), "wrong"), with_nul);
  EXPECT_EQ(store->CompareSet("k", with_nul, "right"), "right");
}

TEST_P(CompareSetContract, Item034_AnEmptyExpectationDoesNotMatchAValue) {
  const auto store = Open();
  store->Set("k", "current");
  EXPECT_EQ(store->CompareSet("k", "", "desired"), "current");
  EXPECT_EQ(store->Get("k"), "current");
}

TEST_P(CompareSetContract, Item035_AnEmptyExpectationMatchesAnEmptyValue) {
  const auto store = Open();
  store->Set("k", "");
  EXPECT_EQ(store->CompareSet("k", "", "desired"), "desired");
  EXPECT_EQ(store->Get("k"), "desired");
}

TEST_P(CompareSetContract, Item035_AMatchMayReplaceByNothing) {
  const auto store = Open();
  store->Set("k", "old");
  EXPECT_EQ(store->CompareSet("k", "old", ""), "");
  EXPECT_TRUE(store->Check({"k"}));
  EXPECT_EQ(store->Get("k"), "");
}

TEST_P(CompareSetContract, Item030_ADeletedKeyIsAbsent) {
  const auto store = Open();
  store->Set("k", "old");
  store->DeleteKey("k");
  EXPECT_EQ(store->CompareSet("k", "old", "new"), "old");
  EXPECT_FALSE(store->Check({"k"}));
}

}  // namespace muster::test
