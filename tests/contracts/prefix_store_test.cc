// PrefixStore: its names of keys, and what it leaves to the store inside.
#include "muster/prefix_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>

#include "muster/file_store.h"
#include "muster/hash_store.h"
#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "support/raw_client.h"
#include "support/temp_dir.h"

namespace muster::test {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(PrefixStoreTest, Item090_AKeyIsPrefixSlashKeyInside) {
  const auto inner = HashStore::Create();
  PrefixStore store("p", inner);
  store.Set("foo", "bar");
  EXPECT_EQ(inner->Get("p/foo"), "bar");
  inner->Set("p/other", "seen");
  EXPECT_EQ(store.Get("other"), "seen");
}

TEST(PrefixStoreTest, Item090_NestedTheInnerPrefixComesFirst) {
  const auto inner = HashStore::Create();
  const auto a = std::make_shared<PrefixStore>("a", inner);
  PrefixStore b("b", a);
  b.Set("k", "v");
  EXPECT_THAT(inner->ListKeys(), UnorderedElementsAre("a/b/k"));
  EXPECT_EQ(a->Get("b/k"), "v");
}

TEST(PrefixStoreTest, Item090_NothingIsNormalised) {
  const auto inner = HashStore::Create();
  PrefixStore("", inner).Set("k", "1");
  PrefixStore("a/", inner).Set("/k", "2");
  PrefixStore("a", inner).Set("", "3");
  EXPECT_THAT(inner->ListKeys(), UnorderedElementsAre("/k", "a///k", "a/"));
}

TEST(PrefixStoreTest, Item090_EveryOperationIsPrefixed) {
  const auto inner = HashStore::Create();
  PrefixStore store("p", inner);
  store.Set("set", "v");
  store.Add("add", 1);
  store.Append("append", "x");
  store.CompareSet("cas", "", "y");
  store.MultiSet({"m1", "m2"}, {"1", "2"});
  EXPECT_THAT(inner->ListKeys(),
              UnorderedElementsAre("p/set", "p/add", "p/append", "p/cas", "p/m1", "p/m2"));
  EXPECT_TRUE(store.Check({"set", "add"}));
  EXPECT_THAT(store.MultiGet({"m2", "m1"}), ::testing::ElementsAre("2", "1"));
  store.Wait({"cas"}, std::chrono::milliseconds(5'000));
  inner->Set("outside", "v");
  EXPECT_FALSE(store.Check({"outside"}));
  EXPECT_FALSE(store.DeleteKey("outside"));
  EXPECT_TRUE(store.DeleteKey("set"));
  EXPECT_FALSE(inner->Check({"p/set"}));
}

TEST(PrefixStoreTest, Item090_OnTheWireTheSlashOfTcpStoreComesFirst) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  PrefixStore store(
      "p", std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = server.port()}));
  store.Set("k", "v");
  store.GetNumKeys();
  EXPECT_EQ(RawClient::Validated(server.port()).AskBlob(GetBytes("/p/k")), "v");
}

TEST(PrefixStoreTest, Item078_QueuesAreNamedWithThePrefix) {
  const auto inner = HashStore::Create();
  PrefixStore store("p", inner);
  store.QueuePush("q", "x");
  EXPECT_EQ(inner->QueueLen("p/q"), 1);
  EXPECT_EQ(inner->QueueLen("q"), 0);
  EXPECT_EQ(store.QueueLen("q"), 1);
  inner->QueuePush("p/q", "y");
  EXPECT_EQ(store.QueuePop("q"), "x");
  EXPECT_EQ(store.QueuePop("q", PopMode::kDoNotWait), "y");
}

TEST(PrefixStoreTest, Item078_QueuesOnTheWireToo) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  PrefixStore store(
      "p", std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = server.port()}));
  store.QueuePush("q", "x");
  EXPECT_EQ(store.QueueLen("q"), 1);
  EXPECT_EQ(RawClient::Validated(server.port()).AskNumber(QueueLenBytes("/p/q")), 1);
}

TEST(PrefixStoreTest, Item082_OnlyOwnKeysAreListed) {
  const auto inner = HashStore::Create();
  inner->Set("foobar/x", "another prefix that begins alike");
  inner->Set("foo", "exactly the prefix");
  inner->Set("foo/a", "");
  inner->Set("foo/b/c", "");
  inner->Set("bar/foo/d", "");
  EXPECT_THAT(PrefixStore("foo", inner).ListKeys(), UnorderedElementsAre("a", "b/c"));
  EXPECT_THAT(PrefixStore("fo", inner).ListKeys(), IsEmpty());
}

TEST(PrefixStoreTest, Item087_ABarrierUsesCounterKeysEvenOverTcp) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  PrefixStore store(
      "p", std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = server.port()}));
  store.Barrier("b", 1);
  EXPECT_THAT(store.ListKeys(), UnorderedElementsAre("b/num_members", "b/last_member"));
  EXPECT_EQ(store.Get("b/num_members"), "1");
  RawClient raw = RawClient::Validated(server.port());
  EXPECT_EQ(raw.Ask(CheckBytes({"/p/b/num_members", "/p/b/last_member"}), 1), kReady);
  EXPECT_EQ(raw.Ask(CheckBytes({"/p/b"}), 1), kNotReady);
}

TEST(PrefixStoreTest, Item087_ABarrierMeetsClientsThatCountByHand) {
  const auto inner = HashStore::Create();
  // As the elastic helpers do it: they count too, and the last one opens the barrier with another
  // value.
  EXPECT_EQ(inner->Add("p/b/num_members", 1), 1);
  PrefixStore("p", inner).Barrier("b", 2);
  inner->Wait({"p/b/last_member"}, std::chrono::milliseconds(5'000));
}

TEST(PrefixStoreTest, Item091_TheCountIsThatOfTheWholeStore) {
  const auto inner = HashStore::Create();
  PrefixStore store("p", inner);
  inner->Set("outside", "v");
  store.Set("inside", "v");
  EXPECT_EQ(store.GetNumKeys(), 2);
}

TEST(PrefixStoreTest, Item091_TheTimeoutIsThatOfTheStoreInside) {
  const auto inner = HashStore::Create();
  PrefixStore store("p", inner);
  EXPECT_EQ(store.Timeout(), kDefaultStoreTimeout);
  store.SetTimeout(milliseconds(77));
  EXPECT_EQ(inner->Timeout(), milliseconds(77));
  inner->SetTimeout(milliseconds(88));
  EXPECT_EQ(store.Timeout(), milliseconds(88));
}

TEST(PrefixStoreTest, Item092_TheExtendedApiIsThatOfTheStoreInside) {
  const TempDir dir;
  EXPECT_TRUE(PrefixStore("p", HashStore::Create()).HasExtendedApi());
  EXPECT_FALSE(PrefixStore("p", std::make_shared<FileStore>(dir.File("f"))).HasExtendedApi());
}

TEST(PrefixStoreTest, Item088_ACloneHasTheSamePrefixOverAClone) {
  const TempDir dir;
  PrefixStore store("p", std::make_shared<FileStore>(dir.File("f")));
  const auto clone = std::dynamic_pointer_cast<PrefixStore>(store.Clone());
  ASSERT_NE(clone, nullptr);
  EXPECT_EQ(clone->prefix(), "p");
  EXPECT_NE(clone->underlying(), store.underlying());
  clone->Set("k", "v");
  EXPECT_EQ(store.Get("k"), "v");
}

TEST(PrefixStoreTest, Item090_TheInnermostStoreCanBeReached) {
  const auto inner = HashStore::Create();
  const auto a = std::make_shared<PrefixStore>("a", inner);
  const PrefixStore b("b", a);
  EXPECT_EQ(b.underlying(), a);
  EXPECT_EQ(b.underlying_non_prefix(), inner);
}

TEST(PrefixStoreTest, Item090_AStoreOfNothingIsRefused) {
  EXPECT_THROW(PrefixStore("p", nullptr), std::invalid_argument);
}

}  // namespace muster::test
