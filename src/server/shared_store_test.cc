#include "server/shared_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
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

// Clients that wait for many keys each, and for one that never comes: a step that wakes all of them
// would hold the lock for as long as they have keys.
class SharedStoreWakingTest : public ::testing::Test {
 protected:
  static constexpr size_t kClients = 100;
  static constexpr size_t kKeys = kKeysPerPiece - 1;
  static constexpr size_t kAll = kClients * kKeys;
  // One key may be above the bound, if so many clients wait for it.
  static constexpr size_t kAtOnceMax = 10'000 + 2 * kClients;

  SharedStoreWakingTest() {
    for (size_t i = 0; i < kKeys; ++i) names_.push_back("/gate/" + std::to_string(i));
    keys_.assign(names_.begin(), names_.end());
    std::vector<std::string_view> wanted = keys_;
    wanted.push_back("/never");
    for (size_t i = 0; i < kClients; ++i)
      Step(ClientId{100 + i}, {.op = Op::kWait, .keys = wanted});
    EXPECT_EQ(Waited(), kAll + kClients);
  }

  template <typename Work>
  void InTurn(Work work) {
    SharedStore::Turn turn(store_, 0);
    work(turn);
    turn.Finish();
  }
  void Step(ClientId client, const Request& request) {
    bool wait_ended = false;
    InTurn([&](auto& turn) { turn.Step(client, request, now_, &wait_ended); });
  }
  size_t Waited() {
    size_t waited = 0;
    InTurn([&](auto& turn) { waited = turn.Stats().waited_keys; });
    return waited;
  }
  /// `work` did not clear too many places.
  template <typename Work>
  void AssertShort(Work work) {
    const size_t before = Waited();
    work();
    ASSERT_LE(before - Waited(), kAtOnceMax) << "in one turn";
  }

  Instant now_{};
  SharedStore store_{{}, uint64_t{1} << 30, 1, [](size_t) {}};
  std::vector<std::string> names_;
  std::vector<std::string_view> keys_;
};

TEST_F(SharedStoreWakingTest, AMultiSetWakesThemInSteps) {
  const std::vector<std::string_view> values(kKeys, "v");
  const Request set{.op = Op::kMultiSet, .keys = keys_, .values = values};
  InTurn([&](auto& turn) { ASSERT_TRUE(turn.IsLong(set)); });
  LongStep step(set.op, kClient, store_.hasher(), store_.account());
  for (const std::string_view key : keys_) ASSERT_TRUE(step.Add(key, "v"));
  for (bool done = false; !done;) {
    AssertShort([&] {
      bool wait_ended = false;
      InTurn([&](auto& turn) { done = turn.Advance(step, kClient, now_, nullptr, &wait_ended); });
    });
  }
  EXPECT_EQ(Waited(), kClients) << "for the key that never comes";
  InTurn([&](auto& turn) { EXPECT_FALSE(turn.IsLong(set)) << "nobody waits for these any more"; });
}

TEST_F(SharedStoreWakingTest, ABatchOfWritesEndsEarly) {
  for (const Op op : {Op::kSet, Op::kQueuePush}) {
    size_t done = 0;
    AssertShort([&] {
      InTurn([&](auto& turn) {
        bool wait_ended = false;
        for (; done < kKeys && !turn.ShouldEnd(); ++done) {
          turn.Step(kClient, {.op = op, .key = keys_[op == Op::kSet ? done : kKeys - 1 - done]},
                    now_, &wait_ended);
        }
      });
    });
    EXPECT_LT(done, kKeys / 2);
  }
}

TEST_F(SharedStoreWakingTest, ReservationsThatEndTogetherAreFreedInSteps) {
  constexpr uint64_t kHolders = 1'000'000;
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string queue = "/queue/" + std::to_string(i);
    const std::string_view name = queue;
    Step(kClient, {.op = Op::kQueuePush, .key = name});
    Step(ClientId{kHolders + i}, {.op = Op::kWait, .keys = {&name, 1}});
    names_[i] = queue;
  }
  std::vector<std::string_view> wanted(names_.begin(), names_.end());
  wanted.push_back("/never");
  for (size_t i = 0; i < kClients; ++i) {
    Step(ClientId{1'000 + i}, {.op = Op::kWait, .keys = wanted});
  }
  now_ = Instant{} + std::chrono::seconds(2);
  int turns = 0;
  for (bool more = true; more; ++turns) {
    AssertShort([&] { InTurn([&](auto& turn) { more = turn.Expire(now_); }); });
  }
  EXPECT_GT(turns, 5);
  EXPECT_EQ(Waited(), kAll + 2 * kClients);
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
