// Long requests in short steps: their results, and what other clients see in between.
#include "store/core/long_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/machine_test_words.h"

namespace muster {
namespace {

using namespace testing_words;  // NOLINT: it is the vocabulary of this file

constexpr size_t kMany = 2 * kKeysPerPiece + 1;

class LongStepTest : public ::testing::Test {
 protected:
  /// Of kA. Keys "0", "1", ...
  void Begin(Op op, size_t keys = kMany, std::string_view value = "v") {
    step_.emplace(op, kA, KeyHasher(), account_);
    for (size_t i = 0; i < keys; ++i) ASSERT_TRUE(step_->Add(Concat(i), value));
  }
  bool Advance() {
    return step_->Advance(
        machine_, kNow,
        [&](const ValueView& value) {
          taken_.emplace_back(value);
          return taken_.size() <= taken_max_;
        },
        released_);
  }
  /// Runs the request to its end and returns the reply as text.
  std::string Finish() {
    while (!Advance()) {
    }
    const std::string words = Words(step_->reply());
    step_.reset();
    return words;
  }
  std::string Ask(ClientId client, const Request& request) {
    return Words(machine_.Step(client, request, kNow, released_));
  }
  std::string Set(std::string_view key, std::string_view value = "v") {
    return Ask(kB, {.op = Op::kSet, .key = key, .value = value});
  }
  std::string Get(std::string_view key) { return Ask(kB, {.op = Op::kGet, .key = key}); }
  std::string Wait(ClientId client, std::string_view key) {
    return Ask(client, {.op = Op::kWait, .keys = {&key, 1}});
  }
  int64_t CountKeys() { return machine_.Step(kB, {.op = Op::kGetNumKeys}, kNow, released_).number; }
  void SetMany() {
    for (size_t i = 0; i < kMany; ++i) Set(Concat(i), Concat("v", i));
  }

  static constexpr Instant kNow{1h};
  MemoryAccount account_;
  StoreMachine machine_{{.account = &account_}};
  std::optional<LongStep> step_;
  std::vector<std::string> taken_;
  size_t taken_max_ = SIZE_MAX;
  Released released_;
};

TEST_F(LongStepTest, AMultiGetOfLargeEndsTakesMoreSteps) {
  constexpr size_t kKeys = 300;
  const std::string end(60'000, 'x');
  for (size_t i = 0; i < kKeys; ++i) {
    Set(Concat(i), std::string(kSmallValueBytes + 1, 'x'));
    Ask(kB, {.op = Op::kAppend, .key = Concat(i), .value = end});
  }
  Begin(Op::kMultiGet, kKeys);
  bool done = false;
  while (!done) {
    const size_t before = taken_.size();
    done = Advance();
    ASSERT_LT((taken_.size() - before) * end.size(), StoreMachine::kBytesPerPiece + (1 << 20));
  }
  EXPECT_EQ(taken_.size(), kKeys);
  EXPECT_EQ(taken_.back().size(), kSmallValueBytes + 1 + end.size());
}

TEST_F(LongStepTest, AMultiSetIsSeenByAllAtOnce) {
  Set("5", "old");
  Begin(Op::kMultiSet);
  int64_t seen = 1;
  size_t changes = 0;
  while (!Advance()) {
    const int64_t now = CountKeys();
    EXPECT_EQ(Get("5"), now == 1 ? "'old'" : "'v'");
    EXPECT_EQ(Get(Concat(kMany - 1)), now == 1 ? "''" : "'v'");
    if (now != seen) ++changes;
    seen = now;
  }
  EXPECT_EQ(changes, 1u);
  EXPECT_EQ(seen, static_cast<int64_t>(kMany));
  step_.reset();
  EXPECT_EQ(Get("0"), "'v'");
}

TEST_F(LongStepTest, AMultiSetWakesWhoWaits) {
  Wait(kC, "7");
  Wait(kD, Concat(kMany - 1));
  Begin(Op::kMultiSet);
  EXPECT_EQ(Finish(), "-");
  EXPECT_EQ(Names(released_), ", releases c d");
}

TEST_F(LongStepTest, WhoWaitsIsWokenEvenIfTheKeyIsDeletedRightAway) {
  Wait(kC, "7");
  Begin(Op::kMultiSet);
  while (CountKeys() == 0) Advance();
  EXPECT_EQ(Names(released_), "");
  EXPECT_EQ(Ask(kB, {.op = Op::kDeleteKey, .key = "7"}), "1");
  EXPECT_EQ(Names(released_), ", releases c");
  EXPECT_EQ(Wait(kD, "7"), "-");  // begins after the key existed: the earlier SET does not wake it
  EXPECT_EQ(Finish(), "-");
  EXPECT_EQ(Names(released_), ", releases c");
  EXPECT_EQ(CountKeys(), static_cast<int64_t>(kMany - 1));
}

TEST_F(LongStepTest, WhatOthersDoBeforeIsOverwrittenAndWhatTheyDoAfterStays) {
  Set("0", "old");
  Set("1", "old");
  Begin(Op::kMultiSet);
  while (machine_.Stats().keys == 2 && !Advance() && CountKeys() == 2) {
    Set("0", "before");
    Ask(kB, {.op = Op::kDeleteKey, .key = "1"});
    Set("1", "again");
    Set("2", "before");
    Ask(kB, {.op = Op::kDeleteKey, .key = "2"});
  }
  EXPECT_EQ(Get("0"), "'v'");
  EXPECT_EQ(Get("1"), "'v'");
  Set("2", "after");
  Ask(kB, {.op = Op::kDeleteKey, .key = "3"});
  Finish();
  EXPECT_EQ(Get("2"), "'after'");
  EXPECT_EQ(CountKeys(), static_cast<int64_t>(kMany - 1));
}

TEST_F(LongStepTest, AnAbandonedMultiSetLeavesNothing) {
  const uint64_t before = account_.used();
  Begin(Op::kMultiSet);
  Advance();
  Advance();
  while (step_->Abandon(machine_, released_)) {
  }
  step_.reset();
  EXPECT_EQ(machine_.Stats(), StoreMachineStats{});
  EXPECT_EQ(account_.used(), before);
}

TEST_F(LongStepTest, AScopeDroppedMeanwhileIsJoinedAgain) {
  step_.emplace(Op::kMultiSet, kA, KeyHasher(), account_);
  for (size_t i = 0; i < kMany; ++i) step_->Add(Concat("/muster.run/g/0/", i), "v");
  Advance();
  while (machine_.DropScope("/muster.run/g/0/", kKeysPerPiece)) {
  }
  EXPECT_EQ(Finish(), "-");
  EXPECT_EQ(machine_.Stats(), (StoreMachineStats{.keys = kMany, .scopes = 1}));
  while (machine_.DropScope("/muster.run/g/0/", kKeysPerPiece)) {
  }
  EXPECT_EQ(machine_.Stats(), StoreMachineStats{});
}

TEST_F(LongStepTest, ACheckIsReadyOnlyIfAllAreThere) {
  SetMany();
  Begin(Op::kCheck);
  EXPECT_EQ(Finish(), "ready");
  Ask(kB, {.op = Op::kDeleteKey, .key = Concat(kMany - 1)});
  Begin(Op::kCheck);
  EXPECT_EQ(Finish(), "not ready");
}

TEST_F(LongStepTest, AMultiGetAnswersInOrder) {
  SetMany();
  Ask(kB, {.op = Op::kDeleteKey, .key = "1"});
  Begin(Op::kMultiGet);
  Finish();
  ASSERT_EQ(taken_.size(), kMany);
  EXPECT_EQ(taken_[0], "v0");
  EXPECT_EQ(taken_[1], "");
  EXPECT_EQ(taken_[kMany - 1], Concat("v", kMany - 1));
}

TEST_F(LongStepTest, AllKeysAreListedOnce) {
  SetMany();
  Begin(Op::kListKeys, 0);
  Finish();
  std::sort(taken_.begin(), taken_.end());
  EXPECT_EQ(taken_.size(), kMany);
  EXPECT_EQ(std::unique(taken_.begin(), taken_.end()), taken_.end());
}

TEST_F(LongStepTest, AnAnswerThatIsTooLargeIsRefused) {
  SetMany();
  taken_max_ = kKeysPerPiece;
  Begin(Op::kMultiGet);
  EXPECT_EQ(Finish(), kTooMuch);
  Begin(Op::kListKeys, 0);
  EXPECT_EQ(Finish(), kTooMuch);
}

TEST_F(LongStepTest, AWaitEndsWithItsLastKey) {
  Begin(Op::kWait);
  EXPECT_EQ(Finish(), "-");
  EXPECT_EQ(machine_.Stats().waited_keys, kMany);
  for (size_t i = 0; i + 1 < kMany; ++i) Set(Concat(i));
  EXPECT_EQ(Names(released_), "");
  Set(Concat(kMany - 1));
  EXPECT_EQ(Names(released_), ", releases a");
}

TEST_F(LongStepTest, KeysThatComeWhileAWaitIsRegisteredCount) {
  Begin(Op::kWait);
  Advance();
  for (size_t i = 0; i < kMany; ++i) Set(Concat(i));
  EXPECT_EQ(Names(released_), "");
  EXPECT_EQ(Finish(), "go");
  EXPECT_EQ(machine_.Stats().parked_clients, 0u);
}

TEST_F(LongStepTest, ASecondWaitIsRefused) {
  Wait(kA, "elsewhere");
  Begin(Op::kWait);
  EXPECT_EQ(Finish(), kAlreadyParked);
}

TEST_F(LongStepTest, AWaitThatIsDroppedIsClearedAwayInPassing) {
  const uint64_t before = account_.used();
  Begin(Op::kWait);
  Finish();
  machine_.Drop(kA, kNow, released_);
  EXPECT_EQ(machine_.Stats(), StoreMachineStats{});
  EXPECT_GT(account_.used(), before);
  while (machine_.Expire(kNow, released_)) {
  }
  EXPECT_EQ(account_.used(), before);
  for (size_t i = 0; i < kMany; ++i) Set(Concat(i));
  EXPECT_EQ(Names(released_), "");
}

TEST_F(LongStepTest, AnElementThatWentToAnotherIsWaitedFor) {
  Ask(kB, {.op = Op::kQueuePush, .key = "q", .value = "e"});
  step_.emplace(Op::kWait, kA, KeyHasher(), account_);
  for (size_t i = 0; i < kMany; ++i) step_->Add("q", "");
  Advance();
  EXPECT_EQ(Ask(kB, {.op = Op::kQueuePop, .key = "q"}), "1 'e'");
  EXPECT_EQ(Finish(), "-");
  Ask(kB, {.op = Op::kQueuePush, .key = "q", .value = "f"});
  EXPECT_EQ(Names(released_), ", releases a");
  EXPECT_EQ(Ask(kB, {.op = Op::kQueuePop, .key = "q"}), "0");
  EXPECT_EQ(Ask(kA, {.op = Op::kQueuePop, .key = "q"}), "1 'f'");
}

// --- The bound on memory

class StoreRoomTest : public ::testing::Test {
 protected:
  std::string Ask(const Request& request) {
    Released released;
    return Words(machine_.Step(kA, request, {}, released));
  }
  std::string Set(std::string_view key, std::string_view value) {
    return Ask({.op = Op::kSet, .key = key, .value = value});
  }

  const std::string no_room_ = Concat("refused: ", Describe(Reply::Why::kNoRoom));
  MemoryAccount account_{1 << 20};
  StoreMachine machine_{{.account = &account_}};
};

TEST_F(StoreRoomTest, ALargeValueIsRefusedWhereASmallOneStillFits) {
  EXPECT_EQ(Set("a", std::string(850 << 10, 'x')), "-");
  EXPECT_EQ(Set("b", std::string(100 << 10, 'x')), no_room_);
  EXPECT_EQ(Ask({.op = Op::kAppend, .key = "a", .value = std::string(100 << 10, 'x')}), no_room_);
  EXPECT_EQ(Ask({.op = Op::kQueuePush, .key = "q", .value = std::string(100 << 10, 'x')}),
            no_room_);
  EXPECT_EQ(Ask({.op = Op::kCompareSet, .key = "c", .value = std::string(100 << 10, 'x')}),
            no_room_);
  EXPECT_EQ(Set("b", "small"), "-");
  EXPECT_EQ(Ask({.op = Op::kGetNumKeys}), "2");
}

TEST_F(StoreRoomTest, OverwritingALargeValueGivesItsMemoryBack) {
  EXPECT_EQ(Set("a", std::string(800 << 10, 'x')), "-");
  EXPECT_GT(account_.used(), 800u << 10);
  EXPECT_EQ(Set("a", "y"), "-");
  machine_.TakeGarbage();
  EXPECT_LT(account_.used(), 1u << 10);
  EXPECT_EQ(Set("a", std::string(4'000, 'x')), "-");
  EXPECT_EQ(Set("a", "y"), "-");
  EXPECT_LT(account_.used(), 1u << 10);
}

TEST_F(StoreRoomTest, SmallKeysFillItToTheEndAndNoFurther) {
  uint64_t keys = 0;
  while (Set(Concat("key number ", keys), "v") == "-") ++keys;
  EXPECT_EQ(Set("another", "v"), no_room_);
  EXPECT_GT(keys, 3'000u);
  EXPECT_LE(account_.used(), account_.limit());
  EXPECT_EQ(Ask({.op = Op::kAdd, .key = "n", .number = 1}), no_room_);
  EXPECT_EQ(Set("key number 0", "w"), "-");
}

TEST_F(StoreRoomTest, WaitsCountWithTheBytesOfTheirKeys) {
  const std::string long_key(8'000, 'k');
  std::string last;
  uint64_t clients = 0;
  for (; clients < 1'000 && last != no_room_; ++clients) {
    Released released;
    const std::string key = Concat(long_key, clients);
    const std::string_view view = key;
    last = Words(
        machine_.Step(ClientId{clients}, {.op = Op::kWait, .keys = {&view, 1}}, {}, released));
  }
  EXPECT_EQ(last, no_room_);
  EXPECT_LT(clients, 140u);
}

TEST_F(StoreRoomTest, WhoWaitsInABarrierCountsWithItsKey) {
  const std::string key(8'000, 'k');
  const Request arrive{.op = Op::kBarrier, .key = key, .number = 3};
  Ask(arrive);
  const uint64_t first = account_.used();
  EXPECT_GT(first, 2 * key.size());  // the counter, and the line of waiters
  Released released;
  machine_.Step(ClientId{2}, arrive, {}, released);
  EXPECT_GT(account_.used(), first);
  machine_.Drop(ClientId{2}, {}, released);
  EXPECT_EQ(account_.used(), first);
  machine_.Drop(kA, {}, released);
  EXPECT_LT(account_.used(), first - key.size());
  EXPECT_EQ(Set("large", std::string(840 << 10, 'x')), "-");
  uint64_t clients = 0;
  std::string last;
  for (; clients < 1'000 && last != no_room_; ++clients) {
    const std::string other = Concat(key, clients);
    last = Words(machine_.Step(ClientId{10 + clients},
                               {.op = Op::kBarrier, .key = other, .number = 2}, {}, released));
  }
  EXPECT_EQ(last, no_room_);
  EXPECT_LT(clients, 15u);
}

TEST_F(StoreRoomTest, AnElementThatIsKeptForAClientCounts) {
  const std::string key(8'000, 'k');
  const std::string_view view = key;
  Ask({.op = Op::kQueuePush, .key = key, .value = "1"});
  const uint64_t before = account_.used();
  Ask({.op = Op::kWait, .keys = {&view, 1}});
  EXPECT_GT(account_.used(), before + key.size());
  Ask({.op = Op::kPing});
  EXPECT_EQ(account_.used(), before);
}

TEST_F(StoreRoomTest, WithEverythingGoneNothingIsCounted) {
  Set("a", std::string(100 << 10, 'x'));
  Ask({.op = Op::kAppend, .key = "a", .value = std::string(10, 'y')});
  Ask({.op = Op::kAppend, .key = "b", .value = std::string(5'000, 'y')});
  Ask({.op = Op::kQueuePush, .key = "q", .value = std::string(5'000, 'y')});
  Ask({.op = Op::kDeleteKey, .key = "a"});
  Ask({.op = Op::kDeleteKey, .key = "b"});
  Ask({.op = Op::kQueuePop, .key = "q"});
  Ask({.op = Op::kQueuePush, .key = "q", .value = ""});
  Ask({.op = Op::kQueuePop, .key = "q"});
  machine_.TakeGarbage();
  EXPECT_EQ(account_.used(), 0u);
}

}  // namespace
}  // namespace muster
