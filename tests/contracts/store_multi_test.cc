// Append, MultiGet, MultiSet: native or not, they behave the same.
#include <stdexcept>

#include "contracts/store_contract.h"

namespace muster::test {

using ::testing::ElementsAre;

class MultiContract : public StoreContract {};
INSTANTIATE_TEST_SUITE_P(Stores, MultiContract, ::testing::ValuesIn(AllStores()), KindName);

TEST_P(MultiContract, Item058_AppendAddsToTheEndAndCreates) {
  const auto store = Open();
  store->Set("foo", "po");
  store->Append("foo", "tato");
  store->Append("bar", "po");
  store->Append("bar", "tato");
  EXPECT_EQ(store->Get("foo"), "potato");
  EXPECT_EQ(store->Get("bar"), "potato");
}

TEST_P(MultiContract, Item059_ASuffixEqualToTheValueDoublesIt) {
  const auto store = Open();
  store->Append("k", "ab");
  store->Append("k", "ab");
  EXPECT_EQ(store->Get("k"), "abab");
  store->Append("k", "abab");
  EXPECT_EQ(store->Get("k"), "abababab");
}

TEST_P(MultiContract, Item059_AppendingNothingCreatesAnEmptyValue) {
  const auto store = Open();
  store->Append("k", "");
  EXPECT_TRUE(store->Check({"k"}));
  EXPECT_EQ(store->Get("k"), "");
  store->Append("k", "x");
  store->Append("k", "");
  EXPECT_EQ(store->Get("k"), "x");
}

TEST_P(MultiContract, Item060_MultiGetReturnsWhatMultiSetWrote) {
  const auto store = Open();
  store->MultiSet({"foo", "bar"}, {"po", "tato"});
  EXPECT_THAT(store->MultiGet({"foo", "bar"}), ElementsAre("po", "tato"));
  EXPECT_EQ(store->Get("bar"), "tato");
}

TEST_P(MultiContract, Item061_MultiGetKeepsTheOrderAndRepeats) {
  const auto store = Open();
  store->MultiSet({"a", "b", "c"}, {"1", "", "3"});
  EXPECT_THAT(store->MultiGet({"c", "a", "c", "b", "a"}), ElementsAre("3", "1", "3", "", "1"));
}

TEST_P(MultiContract, Item061_InAMultiSetTheLastOfEqualKeysWins) {
  const auto store = Open();
  store->MultiSet({"k", "other", "k"}, {"first", "x", "last"});
  EXPECT_EQ(store->Get("k"), "last");
}

TEST_P(MultiContract, Item062_MultiGetWithAMissingKeyTimesOut) {
  const auto store = Open();
  store->Set("here", "v");
  store->SetTimeout(milliseconds(100));
  const Stopwatch watch;
  EXPECT_THROW(store->MultiGet({"here", "missing"}), StoreTimeoutError);
  EXPECT_GE(watch.Elapsed(), milliseconds(100));
  store->Set("missing", "w");
  EXPECT_THAT(store->MultiGet({"here", "missing"}), ElementsAre("v", "w"));
}

TEST_P(MultiContract, Item063_MultiSetWithTooFewValuesIsRefusedAndSetsNothing) {
  const auto store = Open();
  const std::string text = ErrorOf<std::invalid_argument>([&] {
    store->MultiSet({"a", "b"}, {"only one"});
  });
  EXPECT_THAT(text, ::testing::HasSubstr("multiSet keys and values vectors must be of same size"));
  EXPECT_FALSE(store->Check({"a"}));
  EXPECT_FALSE(store->Check({"b"}));
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys);
}

TEST_P(MultiContract, Item066_MultiOperationsOnNothingDoNothing) {
  const auto store = Open();
  store->MultiSet({}, {});
  EXPECT_TRUE(store->MultiGet({}).empty());
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys);
}

TEST_P(MultiContract, Item060_AThousandKeysAtOnce) {
  const auto store = Open();
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (int i = 0; i < 1000; ++i) {
    keys.push_back("key" + std::to_string(i));
    values.push_back(std::string(static_cast<size_t>(i), static_cast<char>('a' + i % 26)));
  }
  store->MultiSet(keys, values);
  EXPECT_EQ(Open()->MultiGet(keys), values);
}

TEST_P(MultiContract, Item092_TheStoreReportsWhetherTheseAreNative) {
  EXPECT_EQ(Open()->HasExtendedApi(), facts().has_extended_api);
}

}  // namespace muster::test
