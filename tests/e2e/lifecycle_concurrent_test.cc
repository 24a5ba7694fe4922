// Servers that end while clients use them, and many clients that connect at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/process_limits.h"
#include "support/raw_client.h"

namespace muster::test {

namespace {

using StorePtr = std::shared_ptr<TcpStore>;

std::unique_ptr<StoreServer> MakeServer(int threads) {
  return std::make_unique<StoreServer>(StoreServerOptions{.host = "127.0.0.1", .threads = threads});
}

StorePtr Connect(uint16_t port) {
  return std::make_shared<TcpStore>("127.0.0.1",
                                    TcpStoreOptions{.port = port, .timeout = kPatience});
}

}  // namespace

TEST(ServerEndTest, Item056_BlockedClientsAreNotifiedAtOnce) {
  for (const int threads : {1, 2}) {
    auto server = MakeServer(threads);
    std::vector<std::unique_ptr<Background<void>>> blocked;
    const uint16_t port = server->port();
    blocked.push_back(
        std::make_unique<Background<void>>([store = Connect(port)] { store->Get("k"); }));
    blocked.push_back(std::make_unique<Background<void>>([store = Connect(port)] {
      store->Wait({"a", "b"});
    }));
    blocked.push_back(
        std::make_unique<Background<void>>([store = Connect(port)] { store->MultiGet({"k"}); }));
    blocked.push_back(
        std::make_unique<Background<void>>([store = Connect(port)] { store->QueuePop("q"); }));
    blocked.push_back(
        std::make_unique<Background<void>>([store = Connect(port)] { store->Barrier("b", 2); }));
    for (const auto& call : blocked) ASSERT_TRUE(call->UntilBlocked());
    const Stopwatch watch;
    server.reset();
    for (const auto& call : blocked) EXPECT_THROW(call->Result(), NetworkError);
    EXPECT_LT(watch.Elapsed(), kPatience / 2);  // well before their own timeouts
  }
}

TEST(ServerEndTest, Item089_ClonesEndWithTheStoreThatOwnsTheServer) {
  auto owner = std::make_shared<TcpStore>(
      "127.0.0.1", TcpStoreOptions{.port = 0,
                                   .is_server = true,
                                   .timeout = kPatience,
                                   .server = {.host = "127.0.0.1", .threads = 2}});
  const auto clone = owner->Clone();
  clone->Set("k", "v");
  EXPECT_EQ(owner->Get("k"), "v");
  Background<std::string> blocked([clone] { return clone->Get("never"); });
  ASSERT_TRUE(blocked.UntilBlocked());
  owner.reset();
  EXPECT_THROW(blocked.Result(), NetworkError);
  EXPECT_THROW(clone->Set("k", "w"), NetworkError);
}

TEST(ServerEndTest, Item088_ACloneOfABlockedStoreReleasesIt) {
  const auto server = MakeServer(2);
  const StorePtr store = Connect(server->port());
  Background<std::string> blocked([store] { return store->Get("k"); });
  ASSERT_TRUE(blocked.UntilBlocked());
  const auto clone = store->Clone();  // made while the original is blocked
  EXPECT_EQ(clone->Add("n", 1), 1);
  clone->Set("k", "v");
  EXPECT_EQ(blocked.Result(), "v");
}

TEST(ServerEndTest, Item112_AServerMayEndUnderFullLoad) {
  for (int round = 0; round < 10; ++round) {
    auto server = MakeServer(1 + round % 2);
    const uint16_t port = server->port();
    std::atomic<int> working = 0;
    std::vector<std::unique_ptr<Background<void>>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<Background<void>>([port, i, &working] {
        const StorePtr store = Connect(port);
        for (int k = 0;; ++k) {
          store->Add("n", 1);
          store->Set("k" + std::to_string(i), std::string(1'000, 'v'));
          store->QueuePush("q", "x");
          store->Get("k" + std::to_string(i));
          if (k == 0) ++working;
        }
      }));
    }
    ASSERT_TRUE(EventuallyTrue([&] { return working == 4; }));
    server.reset();
    for (const auto& client : clients) EXPECT_THROW(client->Result(), NetworkError);
  }
}

TEST(ServerEndTest, Item112_AServerMayEndWhileClientsConnect) {
  for (int round = 0; round < 10; ++round) {
    auto server = MakeServer(2);
    const uint16_t port = server->port();
    std::atomic<bool> stop = false;
    std::atomic<int> connected = 0;
    Background<void> knocking([&] {
      while (!stop) {
        try {
          RawClient client = RawClient::Validated(port);
          client.Send(WaitBytes({"/k"}));
          ++connected;
        } catch (const std::runtime_error&) {
          // The connection came too late, which is allowed.
        }
      }
    });
    ASSERT_TRUE(EventuallyTrue([&] { return connected > 20; }));
    server.reset();
    stop = true;
    knocking.Result();
  }
}

TEST(ServerEndTest, Item102_ThreadsThatRequestTheSharedServerGetTheSame) {
  const auto first = StoreServer::Shared({.host = "127.0.0.1", .threads = 1});
  InParallel(8, [&](int) {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(StoreServer::Shared({.port = first->port()}), first);
  });
}

TEST(CrowdTest, Item044_ACrowdEachSetsAKeyAndWaitsForAll) {
  constexpr int kCrowd = 128;
  const auto server = MakeServer(2);
  std::vector<std::string> keys;
  for (int i = 0; i < kCrowd; ++i) keys.push_back("key" + std::to_string(i));
  InParallel(kCrowd, [&](int i) {
    const StorePtr store = Connect(server->port());
    store->Set(keys[static_cast<size_t>(i)], std::to_string(i));
    store->Wait(keys);
    EXPECT_EQ(store->MultiGet(keys).size(), keys.size());
  });
}

TEST(CrowdTest, Item121_FourThousandClientsAtOnce) {
  // All at once, each on its own thread. A sanitizer keeps much memory for each thread: there, 64
  // at once.
  constexpr int kThreads = kMemoryIsMeasurable ? 4096 : 64;
  constexpr int kEach = 4096 / kThreads;
  // Both ends are in this process.
  ASSERT_GE(RaiseDescriptorLimit(), rlim_t{2 * kThreads * kEach + 200});
  const auto server = MakeServer(2);
  std::vector<StorePtr> stores(kThreads * kEach);
  const Stopwatch watch;
  InParallel(kThreads, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      StorePtr& store = stores[static_cast<size_t>(thread * kEach + i)];
      store =
          std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = server->port(),
                                                                  .world_size = kThreads * kEach,
                                                                  .timeout = kPatience});
    }
  });
  // All connected at once, so together they needed no more than each one's timeout.
  if (kThreads == 4096) {
    EXPECT_LT(watch.Elapsed(), kPatience);
  }
  EXPECT_EQ(RawClient::Validated(server->port()).AskBlob(GetBytes("init/")),
            std::to_string(kThreads * kEach));
  InParallel(kThreads, [&](int thread) {
    for (int i = 0; i < kEach; ++i) stores[static_cast<size_t>(thread * kEach + i)]->Add("n", 1);
  });
  EXPECT_EQ(stores[0]->Add("n", 0), kThreads * kEach);
}

}  // namespace muster::test
