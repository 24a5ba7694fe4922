// CompareSet: all six rows of its table.
#include "contracts/store_contract.h"

namespace muster::test {

class CompareSetContract : public StoreContract {
 protected:
  /// The value of "k" after a CompareSet on `current`: the reply and a read must agree.
  std::string ValueAfter(const std::string& current, const std::string& expected,
                         const std::string& desired) {
    const auto store = Open();
    store->Set("k", current);
    const std::string reply = store->CompareSet("k", expected, desired);
    EXPECT_TRUE(store->Check({"k"}));
    EXPECT_EQ(store->Get("k"), reply);
    return reply;
  }
};
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

TEST_P(CompareSetContract, Item032_AMismatchChangesNothingAndReturnsTheValue) {
  EXPECT_EQ(ValueAfter("current", "expected", "desired"), "current");
}

TEST_P(CompareSetContract, Item033_AMatchReplaces) {
  EXPECT_EQ(ValueAfter("old", "old", "new"), "new");
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
  EXPECT_EQ(ValueAfter("current", "", "desired"), "current");
}

TEST_P(CompareSetContract, Item035_AnEmptyExpectationMatchesAnEmptyValue) {
  EXPECT_EQ(ValueAfter("", "", "desired"), "desired");
}

TEST_P(CompareSetContract, Item035_AMatchMayReplaceByNothing) {
  EXPECT_EQ(ValueAfter("old", "old", ""), "");
}

TEST_P(CompareSetContract, Item030_ADeletedKeyIsAbsent) {
  const auto store = Open();
  store->Set("k", "old");
  store->DeleteKey("k");
  EXPECT_EQ(store->CompareSet("k", "old", "new"), "old");
  EXPECT_FALSE(store->Check({"k"}));
}

}  // namespace muster::test
