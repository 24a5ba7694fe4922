// Scopes on the store machine: which keys are in one, and when they are deleted.
#include "store/core/scopes.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/text.h"
#include "support/machine_test_words.h"

namespace muster {
namespace {

using namespace testing_words;  // NOLINT: it is the vocabulary of this file

constexpr std::string_view kScope = "/muster.run/abc/3/";

TEST(ScopeOfTest, AKeyBelongsToItsRoundOfItsGeneration) {
  EXPECT_EQ(ScopeOf("/muster.run/abc/3/rank0"), kScope);
  EXPECT_EQ(ScopeOf("/muster.run/abc/3/a/b/c"), kScope);
  EXPECT_EQ(ScopeOf("/muster.run/abc/3/"), kScope);
  EXPECT_EQ(ScopeOf("/muster.run///"), "/muster.run///");
}

TEST(ScopeOfTest, EveryOtherKeyBelongsToNone) {
  for (const std::string_view key :
       {"", "/", "/k", "/muster.run", "/muster.run/", "/muster.run/abc", "/muster.run/abc/",
        "/muster.run/abc/3", "muster.run/abc/3/k", "/muster.runs/abc/3/k", "//muster.run/a/3/k"}) {
    EXPECT_EQ(ScopeOf(key), "") << key;
  }
}

TEST(StoreScopeTest, DroppingDeletesItsValuesAndQueuesAndNothingElse) {
  SpokenStore store;
  store.OpenScope(kScope);
  store.Set(kA, "/muster.run/abc/3/k", "v");
  store.Push(kA, "/muster.run/abc/3/k", "e");
  store.Push(kA, "/muster.run/abc/3/q", "e");
  store.Set(kA, "/muster.run/abc/4/k", "v");
  store.Set(kA, "/k", "v");
  EXPECT_EQ(store.Stats(), (StoreMachineStats{.keys = 3, .queues = 2, .scopes = 2}));
  EXPECT_EQ(store.DropScope(kScope), "1");
  EXPECT_EQ(store.ListKeys(kA), "['/k' '/muster.run/abc/4/k']");
  EXPECT_EQ(store.Length(kA, "/muster.run/abc/3/q"), "0");
  EXPECT_EQ(store.Stats(), (StoreMachineStats{.keys = 2, .queues = 0, .scopes = 1}));
}

TEST(StoreScopeTest, DroppingGoesInPieces) {
  SpokenStore store;
  store.OpenScope(kScope);
  for (int i = 0; i < 10; ++i) store.Set(kA, Concat(kScope, i), "v");
  EXPECT_EQ(store.DropScope(kScope, 3), "4");
  EXPECT_EQ(store.Stats(), StoreMachineStats{});
}

TEST(StoreScopeTest, AnUnknownScopeIsDroppedAtOnce) {
  SpokenStore store;
  EXPECT_EQ(store.DropScope(kScope), "1");
  EXPECT_EQ(store.DropScope(""), "1");
}

TEST(StoreScopeTest, AnOpenScopeLastsWhateverTimePassesAndThoughItIsEmpty) {
  SpokenStore store({.stray_scope_kept = 60s});
  store.OpenScope(kScope);
  store.Set(kA, "/muster.run/abc/3/k", "v");
  store.Delete(kA, "/muster.run/abc/3/k");
  store.Set(kA, "/muster.run/abc/3/k", "w");
  store.Pass(24h);
  EXPECT_EQ(store.Get(kA, "/muster.run/abc/3/k"), "'w'");
}

TEST(StoreScopeTest, KeysOfAScopeThatNobodyOpensAreKeptForAWhile) {
  SpokenStore store({.stray_scope_kept = 60s});
  store.Set(kA, "/muster.run/abc/3/k", "v");
  store.Pass(59s);
  store.Set(kA, "/muster.run/abc/3/l", "v");  // does not extend its time
  EXPECT_EQ(store.Get(kA, "/muster.run/abc/3/k"), "'v'");
  store.Pass(1s);
  EXPECT_EQ(store.Stats(), StoreMachineStats{});
}

TEST(StoreScopeTest, OpeningInTimeMakesThemLast) {
  SpokenStore store({.stray_scope_kept = 60s});
  store.Set(kA, "/muster.run/abc/3/k", "v");
  store.Pass(59s);
  store.OpenScope(kScope);
  store.OpenScope(kScope);
  store.Pass(24h);
  EXPECT_EQ(store.Get(kA, "/muster.run/abc/3/k"), "'v'");
}

TEST(StoreScopeTest, ALateKeyOfADroppedScopeIsKeptForAWhile) {
  SpokenStore store({.stray_scope_kept = 60s});
  store.OpenScope(kScope);
  store.Set(kA, "/muster.run/abc/3/k", "v");
  store.DropScope(kScope);
  EXPECT_EQ(store.Add(kA, "/muster.run/abc/3/n", 1), "1");
  EXPECT_EQ(store.Stats(), (StoreMachineStats{.keys = 1, .scopes = 1}));
  store.Pass(60s);
  EXPECT_EQ(store.Stats(), StoreMachineStats{});
}

TEST(StoreScopeTest, ExpiryOfManyKeysTakesSeveralSteps) {
  StoreMachine machine({.stray_scope_kept = 60s});
  Released released;
  for (size_t i = 0; i < 2 * kKeysPerPiece + 1; ++i) {
    const std::string key = Concat(kScope, i);
    machine.Step(kA, {.op = Op::kSet, .key = key}, Instant{}, released);
  }
  EXPECT_TRUE(machine.Expire(Instant{60s}, released));
  EXPECT_EQ(machine.Stats().keys, kKeysPerPiece + 1);
  EXPECT_TRUE(machine.Expire(Instant{60s}, released));
  EXPECT_FALSE(machine.Expire(Instant{60s}, released));
  EXPECT_EQ(machine.Stats(), StoreMachineStats{});
}

TEST(StoreScopeTest, ScopesAreCountedAndGivenBack) {
  MemoryAccount account;
  const auto cost_of = [&](const std::string& scope) {
    StoreMachine machine({.account = &account});
    machine.OpenScope(scope);
    return account.used();
  };
  EXPECT_GE(cost_of(std::string(kScope)), 100u);
  EXPECT_GE(cost_of(std::string(8'000, 'x')), 8'100u);
  EXPECT_EQ(account.used(), 0u);
  StoreMachine machine({.account = &account});
  machine.OpenScope(kScope);
  EXPECT_FALSE(machine.DropScope(kScope, 1));
  EXPECT_EQ(account.used(), 0u);
}

TEST(StoreScopeTest, WhoWaitsForADroppedKeyGoesOnWaiting) {
  SpokenStore store;
  store.OpenScope(kScope);
  store.Set(kA, "/muster.run/abc/3/k", "v");
  EXPECT_EQ(store.Wait(kB, {"/muster.run/abc/3/k", "/muster.run/abc/3/l"}), "-");
  store.DropScope(kScope);
  EXPECT_EQ(store.Stats().parked_clients, 1u);
  EXPECT_EQ(store.Set(kA, "/muster.run/abc/3/l", "v"), "-, releases b");
}

TEST(StoreScopeTest, AnElementKeptForAClientGoesWithItsQueue) {
  SpokenStore store;
  EXPECT_EQ(store.Wait(kA, {"/muster.run/abc/3/q"}), "-");
  EXPECT_EQ(store.Push(kB, "/muster.run/abc/3/q", "1"), "-, releases a");
  store.DropScope(kScope);
  EXPECT_EQ(store.Push(kB, "/muster.run/abc/3/q", "2"), "-");
  EXPECT_EQ(store.Pop(kB, "/muster.run/abc/3/q"), "1 '2'");
  EXPECT_EQ(store.Pop(kA, "/muster.run/abc/3/q"), "0");
}

}  // namespace
}  // namespace muster
