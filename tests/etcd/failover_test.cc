// A cluster of three members: the connected one dies, stops, or loses the others.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "etcd/test_client.h"

namespace muster::test {
namespace {

using EtcdFailoverTest = EtcdTest;

/// A client of three members with an established watch.
class Watched {
 public:
  explicit Watched(const EtcdCluster& cluster)
      : test_client(cluster.access()),
        next(test_client.Put("k", "0")->revision + 1),
        watcher(test_client, {.begin = "k"}, next) {
    EXPECT_TRUE(test_client.Put("k", "1"));
    EXPECT_TRUE(watcher.HasReceived({"k=1"}));
  }

  TestClient test_client;
  const int64_t next;
  TestWatcher watcher;
};

/// The connected member is unknown: disturbs and repairs each in turn.
void EachInTurn(EtcdCluster& cluster, Watched& watched,
                const std::function<void(int member)>& disturb,
                const std::function<void(int member)>& repair) {
  std::vector<std::string> expected = {"k=1"};
  for (int member = 0; member < 3; ++member) {
    disturb(member);
    const std::string value = "after " + std::to_string(member);
    // If the answer is lost with its member, a read shows whether the write happened.
    ASSERT_TRUE(EventuallyTrue([&] {
      return watched.test_client.Put("k", value, 0, 5s).has_value() ||
             watched.test_client.Value("k") == value;
    }));
    const auto reached = [&] {
      const std::vector<std::string> changes = watched.watcher.changes();
      return !changes.empty() && changes.back() == "k=" + value;
    };
    EXPECT_TRUE(EventuallyTrue(reached)) << ::testing::PrintToString(watched.watcher.changes());
    repair(member);
    ASSERT_TRUE(EventuallyTrue([&] { return cluster.IsHealthy(); }));
  }
  // Every change comes once: there are as many changes as revisions. Equal neighbours are repeated
  // writes.
  const auto history = watched.test_client.Read({.begin = "k"});
  ASSERT_TRUE(history) << history.error().message;
  const auto count = static_cast<size_t>(history->revision - watched.next + 1);
  EXPECT_TRUE(EventuallyTrue([&] { return watched.watcher.changes().size() == count; }))
      << count << " " << ::testing::PrintToString(watched.watcher.changes());
  // One of the disturbed members was the connected one.
  EXPECT_FALSE(watched.watcher.troubles().empty());
}

TEST_F(EtcdFailoverTest, AKilledMemberIsLeftForAnother) {
  EtcdCluster cluster({.members = 3});
  Watched watched(cluster);
  EachInTurn(
      cluster, watched, [&](int member) { cluster.Kill(member); },
      [&](int member) { cluster.Start(member); });
}

TEST_F(EtcdFailoverTest, AStoppedMemberIsLeftForAnother) {
  EtcdCluster cluster({.members = 3});
  Watched watched(cluster);
  EachInTurn(
      cluster, watched, [&](int member) { cluster.Signal(member, SIGSTOP); },
      [&](int member) { cluster.Signal(member, SIGCONT); });
}

TEST_F(EtcdFailoverTest, ALeaseIsKeptAliveAcrossMembers) {
  EtcdCluster cluster({.members = 3});
  TestClient test_client(cluster.access());
  const auto lease = test_client.Grant(60s);
  ASSERT_TRUE(lease) << lease.error().message;
  ASSERT_TRUE(test_client.Put("k", "v", lease->id));
  for (int member = 0; member < 3; ++member) {
    cluster.Kill(member);
    const auto kept = test_client.KeepAlive(lease->id, 25s);
    EXPECT_TRUE(kept) << kept.error().message;
    cluster.Start(member);
    ASSERT_TRUE(EventuallyTrue([&] { return cluster.IsHealthy(); }));
  }
  EXPECT_EQ(test_client.Value("k"), "v");
}

TEST_F(EtcdFailoverTest, ReadsContinueWhenTheMemberStops) {
  EtcdCluster cluster({.members = 3});
  TestClient test_client(cluster.access());
  ASSERT_TRUE(test_client.Put("k", "v"));
  for (int member = 0; member < 3; ++member) {
    cluster.Signal(member, SIGSTOP);
    EXPECT_EQ(test_client.Value("k"), "v");
    cluster.Signal(member, SIGCONT);
    ASSERT_TRUE(EventuallyTrue([&] { return cluster.IsHealthy(); }));
  }
}

TEST_F(EtcdFailoverTest, WithoutAQuorumNothingIsPromised) {
  EtcdCluster cluster({.members = 3});
  TestClient test_client(cluster.access());
  ASSERT_TRUE(test_client.Put("k", "v"));
  cluster.Kill(1);
  cluster.Kill(2);
  const auto put = test_client.Put("k", "w", 0, 3s);
  ASSERT_FALSE(put);
  EXPECT_TRUE(put.error().code == Code::kTimeout || put.error().code == Code::kUnavailable)
      << put.error().message;
  const auto read = test_client.Read({.begin = "k"}, 3s);
  ASSERT_FALSE(read);
  cluster.Start(1);
  EXPECT_TRUE(EventuallyTrue([&] {
    const std::string value = test_client.Value("k");
    return value == "v" || value == "w";
  }));
}

}  // namespace
}  // namespace muster::test
