// Workers that count themselves while they are constructed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/raw_client.h"

namespace muster::test {

using ::testing::ContainsRegex;
using ::testing::IsEmpty;

namespace {

TcpStoreOptions Worker(uint16_t port, std::optional<int> world_size) {
  return {.port = port, .world_size = world_size, .timeout = kPatience};
}

TcpStoreOptions Owner(std::optional<int> world_size, milliseconds timeout = kPatience) {
  return {.port = 0,
          .world_size = world_size,
          .is_server = true,
          .timeout = timeout,
          .server = {.host = "127.0.0.1", .threads = 1}};
}

}  // namespace

TEST(JoinTest, Item024_TheCounterOfWorkersIsAKey) {
  TcpStore store("127.0.0.1", Owner(1));
  EXPECT_EQ(store.GetNumKeys(), 1);
  for (const char* key : {"key", "key0", "key1", "key2", "key3"}) store.Set(key, "v");
  EXPECT_EQ(store.GetNumKeys(), 6);
  EXPECT_EQ(RawClient::Validated(store.port()).AskBlob(GetBytes("init/")), "1");
}

TEST(JoinTest, Item025_WithoutWaitingForWorkersThereIsNoCounter) {
  TcpStoreOptions options = Owner(1);
  options.wait_for_workers = false;
  TcpStore store("127.0.0.1", options);
  EXPECT_EQ(store.GetNumKeys(), 0);
}

TEST(JoinTest, Item025_WithoutAWorldSizeThereIsNoCounter) {
  TcpStore store("127.0.0.1", Owner(std::nullopt));
  EXPECT_EQ(store.GetNumKeys(), 0);
  TcpStore negative("127.0.0.1", Worker(store.port(), -1));
  EXPECT_EQ(store.GetNumKeys(), 0);
}

TEST(JoinTest, Item080_TheCounterIsNotListed) {
  TcpStore store("127.0.0.1", Owner(1));
  EXPECT_THAT(store.ListKeys(), IsEmpty());
  store.Set("init/", "a user's key of that name");
  EXPECT_THAT(store.ListKeys(), ::testing::ElementsAre("init/"));
}

TEST(JoinTest, Item109_TheOwnerWaitsForTheOthers) {
  // The port must be known before the owner has returned.
  const BoundSocket bound = BindLoopback();
  Background<std::shared_ptr<TcpStore>> owner([&] {
    TcpStoreOptions options = Owner(3);
    options.port = bound.port;
    options.server.listen_fd = bound.fd;
    return std::make_shared<TcpStore>("127.0.0.1", options);
  });
  const TcpStore first("127.0.0.1", Worker(bound.port, 3));
  EXPECT_FALSE(owner.IsDone());
  const TcpStore second("127.0.0.1", Worker(bound.port, 3));
  EXPECT_TRUE(owner.Result()->is_server());
}

TEST(JoinTest, Item109_TheOwnerTimesOutWhenTheOthersDoNotCome) {
  const Stopwatch watch;
  const std::string text = ErrorOf<StoreTimeoutError>(
      [] { const TcpStore store("127.0.0.1", Owner(2, milliseconds(2'000))); });
  EXPECT_THAT(text, ContainsRegex(
                        "Timed out after [0-9]+ seconds waiting for clients. 1/2 clients joined."));
  EXPECT_GE(watch.Elapsed(), milliseconds(1'950));
  EXPECT_LT(watch.Elapsed(), milliseconds(10'000));
}

TEST(JoinTest, Item110_AWorkerDoesNotWaitForTheOthers) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  TcpStore store("127.0.0.1", Worker(server.port(), 5));
  EXPECT_FALSE(store.is_server());
  EXPECT_EQ(RawClient::Validated(server.port()).AskBlob(GetBytes("init/")), "1");
  const TcpStore again("127.0.0.1", Worker(server.port(), 5));
  EXPECT_EQ(RawClient::Validated(server.port()).AskBlob(GetBytes("init/")), "2");
}

TEST(JoinTest, Item111_AWorldOfZeroIsRefused) {
  EXPECT_THROW(TcpStore("127.0.0.1", Owner(0)), std::invalid_argument);
  EXPECT_THROW(TcpStore("127.0.0.1", Worker(29500, 0)), std::invalid_argument);
}

TEST(JoinTest, Item088_ACloneDoesNotCountItselfInAndOwnsNoServer) {
  TcpStore store("127.0.0.1", Owner(1));
  const auto clone = std::dynamic_pointer_cast<TcpStore>(store.Clone());
  ASSERT_NE(clone, nullptr);
  EXPECT_FALSE(clone->is_server());
  EXPECT_EQ(clone->port(), store.port());
  EXPECT_EQ(RawClient::Validated(store.port()).AskBlob(GetBytes("init/")), "1");
}

TEST(JoinTest, Item102_TenantsShareTheCounter) {
  TcpStoreOptions options = Owner(2);
  options.multi_tenant = true;
  options.wait_for_workers = false;
  const TcpStore first("127.0.0.1", options);
  const TcpStore worker("127.0.0.1", Worker(first.port(), 2));
  options.wait_for_workers = true;
  options.port = first.port();
  const TcpStore second("127.0.0.1", options);  // finds one there already, and is the second
  EXPECT_EQ(RawClient::Validated(first.port()).AskBlob(GetBytes("init/")), "2");
}

}  // namespace muster::test
