#include "server/shared_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"

namespace muster {
namespace {

constexpr ClientId kClient = static_cast<ClientId>(1);

PeerGroup Address(uint32_t number) {
  PeerGroup address{};
  std::memcpy(address.data(), &number, sizeof number);
  return address;
}

class SharedStoreGarbageTest : public ::testing::Test {
 protected:
  // A value that notices whether the lock is held when it is destroyed.
  Piece Watched(size_t bytes) {
    Piece made = MakePiece(std::string(bytes, 'x'), store_.account());
    const PieceBytes* const piece = made.get();
    return {piece, [this, made = std::move(made)](const PieceBytes*) mutable {
              ++destroyed_;
              std::future<bool> locks =
                  std::async(std::launch::async, [this] { return store_.HasDeadlines(); });
              // The test waits for an unfinished check when the lock is free.
              if (locks.wait_for(std::chrono::seconds(1)) == std::future_status::timeout) {
                ++under_lock_;
                late_.push_back(std::move(locks));
              }
              made.reset();
            }};
  }

  void Set(const std::string& key, size_t bytes) {
    const Piece piece = Watched(bytes);
    Do({{.op = Op::kSet, .key = key, .value = piece->bytes(), .piece = &piece}});
  }

  void Do(const std::vector<Request>& requests) {
    bool wait_ended = false;
    SharedStore::Turn turn(store_, 0);
    for (const Request& request : requests) {
      if (turn.ShouldEnd()) ++ended_early_;
      turn.Step(kClient, request, Instant{}, &wait_ended);
    }
    turn.Finish();
  }

  int destroyed_ = 0;
  int under_lock_ = 0;
  int ended_early_ = 0;
  int woken_ = 0;
  std::vector<std::future<bool>> late_;
  SharedStore store_{{}, uint64_t{1} << 30, 1, [this](size_t) { ++woken_; }};
};

TEST_F(SharedStoreGarbageTest, OfABatchIsDestroyedWithoutTheLock) {
  Set("/a", 100'000);
  Set("/b", 100'000);
  Do({{.op = Op::kDeleteKey, .key = "/a"},
      {.op = Op::kPing},
      {.op = Op::kDeleteKey, .key = "/b"},
      {.op = Op::kPing}});
  EXPECT_EQ(destroyed_, 2);
  EXPECT_EQ(under_lock_, 0);
  EXPECT_EQ(ended_early_, 0);
}

TEST_F(SharedStoreGarbageTest, OfAScopeIsDestroyedWithoutTheLock) {
  Set("/muster.run/g/0/a", 100'000);
  Set("/muster.run/g/0/b", 100'000);
  store_.DropScope("/muster.run/g/0/");
  EXPECT_EQ(destroyed_, 2);
  Do({{.op = Op::kPing}});
  EXPECT_EQ(under_lock_, 0);
}

TEST_F(SharedStoreGarbageTest, IsDestroyedInPortions) {
  constexpr int kMany = 10;
  constexpr size_t kBytes = 8 << 20;
  for (int i = 0; i < kMany; ++i) Set("/muster.run/g/0/" + std::to_string(i), kBytes);
  store_.DropScope("/muster.run/g/0/");
  EXPECT_GE(destroyed_, 1);
  EXPECT_LT(destroyed_, kMany);
  // A loop is woken as long as there is more.
  for (int turns = 1; destroyed_ < kMany; ++turns) {
    ASSERT_EQ(woken_, turns);
    Do({});
  }
  EXPECT_EQ(store_.account().used(), 0u);
  EXPECT_EQ(under_lock_, 0);
}

TEST(SharedStoreScopeTest, ALargeOneDoesNotKeepTheLoopThatDropsIt) {
  constexpr size_t kMany = 50 * kKeysPerPiece;
  int woken = 0;
  SharedStore store({}, uint64_t{1} << 30, 1, [&](size_t) { ++woken; });
  store.OpenScope("/muster.run/g/0/");
  const auto in_turn = [&](const auto& work) {
    SharedStore::Turn turn(store, 0);
    work(turn);
    turn.Finish();
  };
  for (size_t i = 0; i < kMany; ++i) {
    const std::string key = "/muster.run/g/0/" + std::to_string(i);
    bool wait_ended = false;
    in_turn([&](auto& turn) {
      turn.Step(kClient, {.op = Op::kSet, .key = key}, Instant{}, &wait_ended);
    });
  }
  store.DropScope("/muster.run/g/0/");
  StoreMachineStats left;
  in_turn([&](auto& turn) { left = turn.Stats(); });
  EXPECT_GE(left.keys, kMany - 4 * kKeysPerPiece) << "all were deleted in one go";
  EXPECT_EQ(woken, 1);
  bool more = true;
  for (size_t steps = 0; more; ++steps) {
    ASSERT_LE(steps, kMany / kKeysPerPiece);
    ASSERT_TRUE(store.HasDeadlines());
    in_turn([&](auto& turn) { more = turn.Expire(Instant{}); });
  }
  in_turn([&](auto& turn) { left = turn.Stats(); });
  EXPECT_EQ(left, StoreMachineStats{});
  EXPECT_FALSE(store.HasDeadlines());
}

TEST_F(SharedStoreGarbageTest, ABatchEndsWhenThereIsMuch) {
  Set("/a", 32 << 20);
  Do({{.op = Op::kDeleteKey, .key = "/a"}, {.op = Op::kPing}});
  EXPECT_EQ(ended_early_, 1);
}

// Each address has a counter of its own, also when tens of thousands of them have left memory
// behind: those are forgotten.
TEST(SharedStoreAddressTest, AddressesThatHaveGoneMakeRoomForNewOnes) {
  SharedStore store({}, uint64_t{1} << 30, 1, nullptr);
  constexpr uint32_t kMany = 200'000;
  for (uint32_t i = 0; i < kMany; ++i) {
    const SharedStore::AddedBytes added = store.AddedBy(Address(i));
    ASSERT_EQ(*added, 0) << "address " << i << " shares the counter of another one";
    *added = 5;
  }
}

TEST(SharedStoreAddressTest, AnAddressInUseKeepsItsCounter) {
  SharedStore store({}, uint64_t{1} << 30, 1, nullptr);
  constexpr uint32_t kMany = 200'000;
  const SharedStore::AddedBytes first = store.AddedBy(Address(kMany));
  *first = 7;
  for (uint32_t i = 0; i < kMany; ++i) *store.AddedBy(Address(i)) = 5;
  EXPECT_EQ(store.AddedBy(Address(kMany)), first);
}

}  // namespace
}  // namespace muster
