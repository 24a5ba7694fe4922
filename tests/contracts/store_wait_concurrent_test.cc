// Waiting while others write: which waiters are released, by what, and which are not.
#include <signal.h>

#include "contracts/store_contract.h"

namespace muster::test {

using ::testing::ElementsAre;
using Void = Background<void>;

class WaitingContract : public StoreContract {
 protected:
  /// Lets several handles wait for `key`, calls `write`, which must create it, and checks that all
  /// of them return.
  void AllAreReleasedBy(const std::string& key, const std::function<void(Store&)>& write) {
    constexpr int kWaiters = 5;
    std::vector<std::unique_ptr<Void>> waiters;
    for (int i = 0; i < kWaiters; ++i) {
      waiters.push_back(std::make_unique<Void>([store = Open(), key] { store->Wait({key}); }));
    }
    for (const auto& waiter : waiters) ASSERT_TRUE(waiter->UntilBlocked());
    write(*Open());
    for (const auto& waiter : waiters) waiter->Result();
  }
};
INSTANTIATE_TEST_SUITE_P(Stores, WaitingContract, ::testing::ValuesIn(AllStores()), KindName);

TEST_P(WaitingContract, Item036_CompareSetThatCreatesReleases) {
  AllAreReleasedBy("k", [](Store& store) { EXPECT_EQ(store.CompareSet("k", "", "new"), "new"); });
}

TEST_P(WaitingContract, Item037_CompareSetThatStoresNothingDoesNotRelease) {
  const auto waiting = Open();
  const auto other = Open();
  // Long where a release must come, short where none must come.
  const milliseconds limit = facts().failed_compare_set_releases ? kPatience : milliseconds(300);
  Background<bool> waiter([&] {
    try {
      waiting->Wait({"k"}, limit);
      return true;
    } catch (const StoreTimeoutError&) {
      return false;
    }
  });
  ASSERT_TRUE(UntilParked(waiter));
  EXPECT_EQ(other->CompareSet("k", "wrong", "new"), "wrong");
  EXPECT_EQ(waiter.Result(), facts().failed_compare_set_releases);
  EXPECT_FALSE(other->Check({"k"}));
}

TEST_P(WaitingContract, Item042_AWaitForTwoKeysEndsWithTheSecond) {
  const auto store = Open();
  store->Set("1", "v");
  Settle(*store);
  Void waiter([waiting = Open()] { waiting->Wait({"1", "2"}); });
  ASSERT_TRUE(waiter.UntilBlocked());
  EXPECT_FALSE(waiter.IsDone());
  store->Set("2", "v");
  waiter.Result();
}

TEST_P(WaitingContract, Item042_TheOrderInWhichKeysComeDoesNotMatter) {
  const auto store = Open();
  Void waiter([waiting = Open()] { waiting->Wait({"a", "b", "c"}); });
  for (const char* key : {"c", "a", "b"}) {
    ASSERT_TRUE(waiter.UntilBlocked());
    EXPECT_FALSE(waiter.IsDone()) << key;
    store->Set(key, "v");
    Settle(*store);
  }
  waiter.Result();
}

TEST_P(WaitingContract, Item043_AKeyNamedTwiceNeedsOneSet) {
  const auto store = Open();
  Void waiter([waiting = Open()] { waiting->Wait({"k", "k", "k"}); });
  ASSERT_TRUE(waiter.UntilBlocked());
  store->Set("k", "v");
  waiter.Result();
}

TEST_P(WaitingContract, Item044_EachClientSetsOneKeyAndWaitsForAll) {
  const int crowd = facts().crowd;
  std::vector<std::string> keys;
  std::vector<std::shared_ptr<Store>> stores;
  for (int i = 0; i < crowd; ++i) {
    keys.push_back("key" + std::to_string(i));
    stores.push_back(Open());
  }
  InParallel(crowd, [&](int i) {
    Store& store = *stores[static_cast<size_t>(i)];
    store.Set(keys[static_cast<size_t>(i)], "v");
    store.Wait(keys);
  });
}

TEST_P(WaitingContract, Item045_OneSetReleasesAllWaiters) {
  AllAreReleasedBy("k", [](Store& store) { store.Set("k", "v"); });
}

TEST_P(WaitingContract, Item045_OneAddReleasesAllWaiters) {
  AllAreReleasedBy("k", [](Store& store) { store.Add("k", 1); });
}

TEST_P(WaitingContract, Item045_OneAppendReleasesAllWaiters) {
  AllAreReleasedBy("k", [](Store& store) { store.Append("k", "v"); });
}

TEST_P(WaitingContract, Item045_OneMultiSetReleasesAllWaiters) {
  AllAreReleasedBy("k", [](Store& store) { store.MultiSet({"j", "k"}, {"1", "2"}); });
}

TEST_P(WaitingContract, Item045_GetReturnsWhatReleasedIt) {
  Background<std::string> reader([store = Open()] { return store->Get("k"); });
  ASSERT_TRUE(reader.UntilBlocked());
  Open()->Set("k", "the value");
  EXPECT_EQ(reader.Result(), "the value");
}

TEST_P(WaitingContract, Item054_AKeySeenOnceCountsAsSeen) {
  const auto store = Open();
  // On a busy machine, the waiter may not have checked yet. Then the key that it missed is set
  // again, and the attempt proves nothing.
  constexpr int kAttempts = 5;
  for (const std::vector<std::string>& order :
       {std::vector<std::string>{"first", "last"}, {"last", "first"}}) {
    bool seen = false;
    for (int i = 0; i < kAttempts && !seen; ++i) {
      store->Set("first", "v");
      Settle(*store);
      Void waiter([waiting = Open(), order] { waiting->Wait(order); });
      ASSERT_TRUE(UntilParked(waiter));
      store->DeleteKey("first");
      store->Set("last", "v");
      seen = EventuallyTrue([&] { return waiter.IsDone(); }, seconds(3));
      if (!seen) store->Set("first", "v");
      waiter.Result();
      store->DeleteKey("first");
      store->DeleteKey("last");
    }
    EXPECT_TRUE(seen);
  }
}

TEST_P(WaitingContract, Item055_ASignalDoesNotEndAWait) {
  struct sigaction old {};
  struct sigaction noop {};
  noop.sa_handler = [](int) {};  // without SA_RESTART: system calls return early
  sigaction(SIGUSR1, &noop, &old);
  const auto store = Open();
  {
    Void waiter([waiting = Open()] { waiting->Wait({"k"}); });
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(waiter.UntilBlocked());
      ASSERT_FALSE(waiter.IsDone());
      waiter.Signal(SIGUSR1);
    }
    store->Set("k", "v");
    waiter.Result();
  }
  sigaction(SIGUSR1, &old, nullptr);
}

TEST_P(WaitingContract, Item062_MultiGetWaitsForTheLastKey) {
  const auto store = Open();
  store->Set("a", "1");
  Settle(*store);
  Background<std::vector<std::string>> reader([reading = Open()] {
    return reading->MultiGet({"a", "b"});
  });
  ASSERT_TRUE(reader.UntilBlocked());
  EXPECT_FALSE(reader.IsDone());
  store->Set("b", "2");
  EXPECT_THAT(reader.Result(), ElementsAre("1", "2"));
}

TEST_P(WaitingContract, Item057_ZeroMeansNoLimit) {
  const auto waiting = Open();
  waiting->SetTimeout(milliseconds(0));
  Background<std::string> reader([&] { return waiting->Get("k"); });
  ASSERT_TRUE(reader.UntilBlocked());
  // Long enough for a limit of zero to end it.
  EXPECT_THROW(Open()->Wait({"never"}, milliseconds(100)), StoreTimeoutError);
  EXPECT_FALSE(reader.IsDone());
  Open()->Set("k", "v");
  EXPECT_EQ(reader.Result(), "v");
}

TEST_P(WaitingContract, Item046_OneTimesOutWhileAnotherContinuesToWait) {
  const auto store = Open();
  Void patient([waiting = Open()] { waiting->Wait({"k"}); });
  Void hasty([waiting = Open()] { waiting->Wait({"k"}, milliseconds(100)); });
  EXPECT_THROW(hasty.Result(), StoreTimeoutError);
  EXPECT_FALSE(patient.IsDone());
  store->Set("k", "v");
  patient.Result();
}

TEST_P(WaitingContract, Item098_AKeyCreatedByAddIsNoticedPromptly) {
  const auto adding = Open();
  Background<Clock::time_point> waiter([waiting = Open()] {
    waiting->Wait({"n"}, kPatience);
    return Clock::now();
  });
  ASSERT_TRUE(UntilParked(waiter));
  ASSERT_FALSE(waiter.IsDone());
  EXPECT_EQ(adding->Add("n", 1), 1);
  const Clock::time_point added = Clock::now();
  // A waiter that polls, or that ends at its limit, would be later.
  EXPECT_LT(waiter.Result() - added, seconds(1));
}

}  // namespace muster::test
