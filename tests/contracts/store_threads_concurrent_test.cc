// Many threads: nothing is lost, nothing is torn, barriers hold, clones help.
#include <atomic>
#include <mutex>
#include <set>

#include "contracts/store_contract.h"

namespace muster::test {

using Void = Background<void>;

class ThreadsContract : public StoreContract {
 protected:
  static constexpr int kThreads = 4;
  static constexpr int kRounds = 50;

  std::vector<std::shared_ptr<Store>> OpenMany(int count) {
    std::vector<std::shared_ptr<Store>> stores;
    for (int i = 0; i < count; ++i) stores.push_back(Open());
    return stores;
  }
};
INSTANTIATE_TEST_SUITE_P(Stores, ThreadsContract, ::testing::ValuesIn(AllStores()), KindName);

TEST_P(ThreadsContract, Item016_NoAddIsLost) {
  const auto stores = OpenMany(kThreads);
  InParallel(kThreads, [&](int i) {
    for (int round = 0; round < kRounds; ++round) stores[static_cast<size_t>(i)]->Add("n", 1);
  });
  EXPECT_EQ(stores[0]->Add("n", 0), kThreads * kRounds);
}

TEST_P(ThreadsContract, Item016_NoAddIsLostOnOneHandleEither) {
  const auto store = Open();
  InParallel(kThreads, [&](int i) {
    for (int round = 0; round < kRounds; ++round) {
      store->Add("n", 1);
      store->Set("mine" + std::to_string(i), std::to_string(round));
      EXPECT_EQ(store->Get("mine" + std::to_string(i)), std::to_string(round));
    }
  });
  EXPECT_EQ(store->Get("n"), std::to_string(kThreads * kRounds));
}

TEST_P(ThreadsContract, Item038_CompareSetLosesNoUpdate) {
  const auto stores = OpenMany(kThreads);
  InParallel(kThreads, [&](int i) {
    Store& store = *stores[static_cast<size_t>(i)];
    const std::string me = "#" + std::to_string(i);
    for (int done = 0; done < kRounds;) {
      const std::string now = store.CompareSet("n", "", "0#start");
      const std::string next = std::to_string(std::stoi(now) + 1) + me + "." + std::to_string(done);
      if (store.CompareSet("n", now, next) == next) ++done;
    }
  });
  EXPECT_EQ(std::stoi(stores[0]->Get("n")), kThreads * kRounds);
}

TEST_P(ThreadsContract, Item058_NoAppendIsLostOrTorn) {
  const auto stores = OpenMany(kThreads);
  InParallel(kThreads, [&](int i) {
    Store& store = *stores[static_cast<size_t>(i)];
    for (int round = 0; round < kRounds; ++round) {
      store.Append("log", std::string(3, static_cast<char>('a' + i)) + ";");
    }
    Settle(store);
  });
  const std::string log = stores[0]->Get("log");
  ASSERT_EQ(log.size(), size_t{4 * kThreads * kRounds});
  for (size_t at = 0; at < log.size(); at += 4) {
    EXPECT_EQ(log.substr(at, 4), std::string(3, log[at]) + ";");
  }
}

TEST_P(ThreadsContract, Item060_AMultiSetIsSeenWholeWhereItIsOneOperation) {
  if (!facts().has_extended_api) return;  // there it is several operations, as the facts state
  const auto writer = Open();
  const auto reader = Open();
  std::atomic<bool> stop = false;
  writer->MultiSet({"a", "b"}, {"0", "0"});
  Settle(*writer);
  Void writing([&] {
    for (int i = 1; !stop.load(); ++i) {
      writer->MultiSet({"a", "b"}, {std::to_string(i), std::to_string(i)});
      Settle(*writer);
    }
  });
  for (int i = 0; i < 200; ++i) {
    const std::vector<std::string> seen = reader->MultiGet({"a", "b"});
    EXPECT_EQ(seen[0], seen[1]);
  }
  stop = true;
  writing.Result();
}

TEST_P(ThreadsContract, Item084_NoClientPassesABarrierBeforeTheLastArrives) {
  constexpr int kParties = 6;
  std::atomic<int> through = 0;
  std::vector<std::unique_ptr<Void>> early;
  for (int i = 0; i < kParties - 1; ++i) {
    early.push_back(std::make_unique<Void>([store = Open(), &through] {
      store->Barrier("b", kParties);
      ++through;
    }));
  }
  for (const auto& party : early) ASSERT_TRUE(party->UntilBlocked());
  EXPECT_EQ(through, 0);
  Open()->Barrier("b", kParties);
  for (const auto& party : early) party->Result();
  EXPECT_EQ(through, kParties - 1);
}

TEST_P(ThreadsContract, Item084_BarriersInARowKeepAllClientsInStep) {
  constexpr int kParties = 4;
  const auto stores = OpenMany(kParties);
  std::atomic<int> arrivals = 0;
  InParallel(kParties, [&](int i) {
    for (int round = 1; round <= 10; ++round) {
      ++arrivals;
      stores[static_cast<size_t>(i)]->Barrier("round" + std::to_string(round), kParties);
      EXPECT_GE(arrivals.load(), kParties * round);
    }
  });
}

TEST_P(ThreadsContract, Item088_ACloneWorksWhileTheOriginalIsBlocked) {
  const auto store = Open();
  const auto clone = store->Clone();
  Background<std::string> blocked([&] { return store->Get("k"); });
  ASSERT_TRUE(blocked.UntilBlocked());
  EXPECT_EQ(clone->Add("n", 1), 1);
  EXPECT_FALSE(clone->Check({"k"}));
  EXPECT_FALSE(blocked.IsDone());
  clone->Set("k", "from the clone");
  EXPECT_EQ(blocked.Result(), "from the clone");
}

TEST_P(ThreadsContract, Item057_ANewTimeoutDoesNotChangeTheCallUnderWay) {
  const auto store = Open();
  store->SetTimeout(milliseconds(200));
  Background<std::string> blocked([&] { return store->Get("never"); });
  ASSERT_TRUE(blocked.UntilBlocked());
  store->SetTimeout(kDefaultStoreTimeout);  // may wait for the call; must not deadlock
  EXPECT_EQ(store->Timeout(), kDefaultStoreTimeout);
  EXPECT_THROW(blocked.Result(), StoreTimeoutError);
}

class QueueThreadsContract : public ThreadsContract {};
INSTANTIATE_TEST_SUITE_P(Stores, QueueThreadsContract, ::testing::ValuesIn(StoresWithQueues()),
                         KindName);

TEST_P(QueueThreadsContract, Item071_APushReleasesThePopThatWaits) {
  const std::string q = FreshQueue();
  Background<std::string> popper([store = Open(), q] { return store->QueuePop(q); });
  ASSERT_TRUE(popper.UntilBlocked());
  EXPECT_FALSE(popper.IsDone());
  Open()->QueuePush(q, "x");
  EXPECT_EQ(popper.Result(), "x");
}

TEST_P(QueueThreadsContract, Item073_OnePushReleasesOnePop) {
  const std::string q = FreshQueue();
  const auto pusher = Open();
  const auto pop = [q](const std::shared_ptr<Store>& store) {
    return [store, q] { return store->QueuePop(q); };
  };
  Background<std::string> first(pop(Open()));
  Background<std::string> second(pop(Open()));
  ASSERT_TRUE(first.UntilBlocked());
  ASSERT_TRUE(second.UntilBlocked());
  pusher->QueuePush(q, "one");
  ASSERT_TRUE(EventuallyTrue([&] { return first.IsDone() || second.IsDone(); }));
  EXPECT_EQ(pusher->QueueLen(q), 0);
  EXPECT_FALSE(first.IsDone() && second.IsDone());
  pusher->QueuePush(q, "two");
  const std::set<std::string> popped = {first.Result(), second.Result()};
  EXPECT_EQ(popped, (std::set<std::string>{"one", "two"}));
}

TEST_P(QueueThreadsContract, Item077_TwoClonesCommunicateOverTwoQueues) {
  const auto store = Open();
  const auto clone = store->Clone();
  const std::string to_b = FreshQueue();
  const std::string to_a = FreshQueue();
  Void b([&] {
    for (int i = 0; i < kRounds; ++i) clone->QueuePush(to_a, clone->QueuePop(to_b) + "!");
  });
  for (int i = 0; i < kRounds; ++i) {
    store->QueuePush(to_b, std::to_string(i));
    EXPECT_EQ(store->QueuePop(to_a), std::to_string(i) + "!");
  }
  b.Result();
}

TEST_P(QueueThreadsContract, Item071_EveryElementIsPoppedOnceByBlockingPoppers) {
  const std::string q = FreshQueue();
  const auto stores = OpenMany(2 * kThreads);
  std::mutex mutex;
  std::multiset<std::string> popped;
  InParallel(2 * kThreads, [&](int i) {
    Store& store = *stores[static_cast<size_t>(i)];
    for (int round = 0; round < kRounds; ++round) {
      if (i % 2 == 0) {
        store.QueuePush(q, std::to_string(i) + "." + std::to_string(round));
      } else {
        const std::string element = store.QueuePop(q);
        const std::lock_guard lock(mutex);
        popped.insert(element);
      }
    }
  });
  EXPECT_EQ(popped.size(), size_t{kThreads * kRounds});
  EXPECT_EQ(std::set<std::string>(popped.begin(), popped.end()).size(), popped.size());
  EXPECT_EQ(stores[0]->QueueLen(q), 0);
}

}  // namespace muster::test
