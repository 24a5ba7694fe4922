// A cluster of three members, of which the one that is spoken to dies, stops, or loses the others.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "etcd/patron.h"

namespace muster::test {
namespace {

using EtcdFailoverTest = EtcdTest;

/// A client of three members, and its watch, once it is there.
class Watched {
 public:
  explicit Watched(const EtcdCluster& cluster)
      : patron(cluster.access()),
        next(patron.Put("k", "0")->revision + 1),
        hearer(patron, {.begin = "k"}, next) {
    EXPECT_TRUE(patron.Put("k", "1"));
    EXPECT_TRUE(hearer.HasHeard({"k=1"}));
  }

  Patron patron;
  const int64_t next;
  Hearer hearer;
};

/// Nobody says which member a client speaks to: each in turn is disturbed, and put right again.
void EachInTurn(EtcdCluster& cluster, Watched& watched,
                const std::function<void(int member)>& disturb,
                const std::function<void(int member)>& repair) {
  std::vector<std::string> expected = {"k=1"};
  for (int member = 0; member < 3; ++member) {
    disturb(member);
    const std::string value = "after " + std::to_string(member);
    // A write may be lost with its member: then nobody knows whether it happened, and we ask.
    ASSERT_TRUE(EventuallyTrue([&] {
      return watched.patron.Put("k", value, 0, 5s).has_value() ||
             watched.patron.Value("k") == value;
    }));
    const auto reached = [&] {
      const std::vector<std::string> changes = watched.hearer.changes();
      return !changes.empty() && changes.back() == "k=" + value;
    };
    EXPECT_TRUE(EventuallyTrue(reached)) << ::testing::PrintToString(watched.hearer.changes());
    repair(member);
    ASSERT_TRUE(EventuallyTrue([&] { return cluster.IsHealthy(); }));
  }
  // Every change once: equal neighbours are writes that were repeated, and have revisions of their
  // own. The number of changes is the number of revisions.
  const auto history = watched.patron.Read({.begin = "k"});
  ASSERT_TRUE(history) << history.error().message;
  const auto count = static_cast<size_t>(history->revision - watched.next + 1);
  EXPECT_TRUE(EventuallyTrue([&] { return watched.hearer.changes().size() == count; }))
      << count << " " << ::testing::PrintToString(watched.hearer.changes());
  // At least one of them was the one that was spoken to.
  EXPECT_FALSE(watched.hearer.troubles().empty());
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
  Patron patron(cluster.access());
  const auto lease = patron.Grant(60s);
  ASSERT_TRUE(lease) << lease.error().message;
  ASSERT_TRUE(patron.Put("k", "v", lease->id));
  for (int member = 0; member < 3; ++member) {
    cluster.Kill(member);
    const auto kept = patron.KeepAlive(lease->id, 25s);
    EXPECT_TRUE(kept) << kept.error().message;
    cluster.Start(member);
    ASSERT_TRUE(EventuallyTrue([&] { return cluster.IsHealthy(); }));
  }
  EXPECT_EQ(patron.Value("k"), "v");
}

TEST_F(EtcdFailoverTest, ReadsGoOnWhenTheMemberStops) {
  EtcdCluster cluster({.members = 3});
  Patron patron(cluster.access());
  ASSERT_TRUE(patron.Put("k", "v"));
  for (int member = 0; member < 3; ++member) {
    cluster.Signal(member, SIGSTOP);
    EXPECT_EQ(patron.Value("k"), "v");
    cluster.Signal(member, SIGCONT);
    ASSERT_TRUE(EventuallyTrue([&] { return cluster.IsHealthy(); }));
  }
}

TEST_F(EtcdFailoverTest, WithoutAQuorumNothingIsPromised) {
  EtcdCluster cluster({.members = 3});
  Patron patron(cluster.access());
  ASSERT_TRUE(patron.Put("k", "v"));
  cluster.Kill(1);
  cluster.Kill(2);
  const auto put = patron.Put("k", "w", 0, 3s);
  ASSERT_FALSE(put);
  EXPECT_TRUE(put.error().code == Code::kTimeout || put.error().code == Code::kUnavailable)
      << put.error().message;
  const auto read = patron.Read({.begin = "k"}, 3s);
  ASSERT_FALSE(read);
  cluster.Start(1);
  EXPECT_TRUE(EventuallyTrue([&] {
    const std::string value = patron.Value("k");
    return value == "v" || value == "w";
  }));
}

}  // namespace
}  // namespace muster::test
