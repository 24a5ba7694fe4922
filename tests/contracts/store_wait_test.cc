// Check and Wait in one thread: what is there, and what does not come in time.
#include "contracts/store_contract.h"

namespace muster::test {

using ::testing::ContainsRegex;

// Short enough to wait for, long enough to distinguish from "at once".
constexpr milliseconds kShort{100};
// On no machine does a timeout take this much longer.
constexpr milliseconds kLate{10'000};

class WaitContract : public StoreContract {};
INSTANTIATE_TEST_SUITE_P(Stores, WaitContract, ::testing::ValuesIn(AllStores()), KindName);

TEST_P(WaitContract, Item039_NoKeysAreAllThere) {
  const auto store = Open();
  EXPECT_TRUE(store->Check({}));
  store->Wait({});
  store->Wait({}, milliseconds(1));
}

TEST_P(WaitContract, Item040_OneMissingKeyAmongManyMakesCheckFalse) {
  const auto store = Open();
  std::vector<std::string> keys;
  for (int i = 0; i < 500; ++i) keys.push_back("key" + std::to_string(i));
  store->MultiSet(keys, std::vector<std::string>(keys.size(), "v"));
  EXPECT_TRUE(store->Check(keys));
  for (const size_t missing : {size_t{0}, keys.size() / 2, keys.size() - 1}) {
    store->DeleteKey(keys[missing]);
    EXPECT_FALSE(store->Check(keys)) << keys[missing];
    store->Set(keys[missing], "v");
  }
  EXPECT_TRUE(store->Check(keys));
}

TEST_P(WaitContract, Item041_WaitForWhatIsThereReturns) {
  const auto store = Open();
  store->Set("a", "");
  store->Add("b", 0);
  store->Append("c", "x");
  store->CompareSet("d", "", "y");
  const Stopwatch watch;
  store->Wait({"a", "b", "c", "d"});
  store->Wait({"d", "a", "d"});
  EXPECT_LT(watch.Elapsed(), kPatience / 2);
}

TEST_P(WaitContract, Item046_WaitForWhatNeverComesEndsInTime) {
  const auto store = Open();
  const Stopwatch watch;
  EXPECT_THROW(store->Wait({"bad_key"}, milliseconds(250)), StoreTimeoutError);
  EXPECT_GE(watch.Elapsed(), milliseconds(250));
  EXPECT_LT(watch.Elapsed(), kLate);
}

TEST_P(WaitContract, Item046_WaitUsesTheStoresTimeoutWhenItHasNone) {
  const auto store = Open();
  store->SetTimeout(kShort);
  const Stopwatch watch;
  EXPECT_THROW(store->Wait({"bad_key"}), StoreTimeoutError);
  EXPECT_GE(watch.Elapsed(), kShort);
  EXPECT_LT(watch.Elapsed(), kLate);
}

TEST_P(WaitContract, Item046_OneMissingKeyAmongManyIsWaitedFor) {
  const auto store = Open();
  store->Set("here", "v");
  store->Set("here too", "v");
  const Stopwatch watch;
  EXPECT_THROW(store->Wait({"here", "missing", "here too"}, kShort), StoreTimeoutError);
  EXPECT_GE(watch.Elapsed(), kShort);
}

TEST_P(WaitContract, Item047_TheErrorNamesTheKeyAndTheTime) {
  const auto store = Open();
  const std::string text = ErrorOf<StoreTimeoutError>([&] { store->Wait({"bad_key"}, kShort); });
  EXPECT_THAT(text, ContainsRegex(Filled(facts().wait_timeout, kShort, "bad_key")));
  EXPECT_THAT(text, ContainsRegex("[t -i]imeout"));  // PyTorch's own tests check this
}

TEST_P(WaitContract, Item048_AfterATimeoutTheStoreWorks) {
  const auto store = Open();
  EXPECT_THROW(store->Wait({"k"}, milliseconds(50)), StoreTimeoutError);
  store->Set("k", "v");
  EXPECT_EQ(store->Get("k"), "v");
  store->Wait({"k"});
  EXPECT_THROW(store->Wait({"other"}, milliseconds(50)), StoreTimeoutError);
  EXPECT_EQ(store->GetNumKeys(), facts().internal_keys + 1);
}

TEST_P(WaitContract, Item048_ManyTimeoutsInARowLeaveTheStoreInStep) {
  const auto store = Open();
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(store->Wait({"never"}, milliseconds(1)), StoreTimeoutError);
    EXPECT_EQ(store->Add("n", 1), i + 1);
  }
}

TEST_P(WaitContract, Item057_GetOfADeletedKeyEndsAfterTheStoresTimeout) {
  const auto store = Open();
  store->Set("k", "v");
  EXPECT_EQ(store->Get("k"), "v");
  store->DeleteKey("k");
  store->SetTimeout(kShort);
  const Stopwatch watch;
  const std::string text = ErrorOf<StoreTimeoutError>([&] { store->Get("k"); });
  EXPECT_GE(watch.Elapsed(), kShort);
  EXPECT_LT(watch.Elapsed(), kLate);
  EXPECT_THAT(text, ContainsRegex(Filled(facts().get_timeout, kShort, "k")));
}

TEST_P(WaitContract, Item057_TimeoutIsWhatWasSet) {
  const auto store = Open();
  for (const milliseconds timeout : {kShort, kDefaultStoreTimeout, milliseconds(0)}) {
    store->SetTimeout(timeout);
    EXPECT_EQ(store->Timeout(), timeout);
  }
}

TEST_P(WaitContract, Item057_AKeyThatIsThereNeedsNoTime) {
  const auto store = Open();
  store->Set("k", "v");
  store->SetTimeout(kShort);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(store->Get("k"), "v");
}

TEST_P(WaitContract, Item047_ErrorsAreOfTheDocumentedFamily) {
  const auto store = Open();
  EXPECT_THROW(store->Wait({"k"}, milliseconds(1)), StoreError);
  EXPECT_THROW(store->Wait({"k"}, milliseconds(1)), DistError);
  EXPECT_THROW(store->Wait({"k"}, milliseconds(1)), std::runtime_error);
}

}  // namespace muster::test
