// How long a node in etcd treats its lease as valid: never longer than etcd does, and no shorter
// than needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "sim/etcd_link_fixture.h"

namespace muster::sim {
namespace {

using ::testing::HasSubstr;

class EtcdLeaseTest : public EtcdLinkTest {
 protected:
  /// One of three nodes in a round.
  LinkNode& Member() {
    for (int i = 0; i < 3; ++i) Joining();
    Run(3s);
    EXPECT_EQ(Ranks(0).size(), 3u);
    return *Others(Leader()).front();
  }
};

// An etcd that has just been started elects its leader first, and answers earlier requests later.
TEST_F(EtcdLeaseTest, ALeaseThatWasGrantedLateIsRenewedBeforeItEnds) {
  cluster().Pause();
  for (int i = 0; i < 3; ++i) Joining();
  Run(settings.dead_after() - 300ms);
  cluster().Resume();
  Run(10s);
  for (const auto& [pid, node] : nodes) EXPECT_FALSE(node->place_lost) << *node->place_lost;
  EXPECT_EQ(Ranks(0), (std::multiset<int64_t>{0, 1, 2}));
}

TEST_F(EtcdLeaseTest, ANodeThatWakesUpAfterItsLeaseReportsPlaceLostAtOnce) {
  LinkNode& node = Member();
  node.process.Suspend();
  Run(10s);
  EXPECT_FALSE(node.place_lost);
  node.process.Resume();
  Run(1us);
  ASSERT_TRUE(node.place_lost);
  EXPECT_THAT(*node.place_lost, HasSubstr("lease"));
}

TEST_F(EtcdLeaseTest, SoDoesOneWhoseClockShowsMoreThanTheOthersHaveWaited) {
  LinkNode& node = Member();
  node.process.Suspend();
  node.process.LeapClock(10s);
  Run(10ms);
  node.process.Resume();
  Run(1us);
  EXPECT_TRUE(node.place_lost);
}

TEST_F(EtcdLeaseTest, AShortSuspensionCostsNothing) {
  LinkNode& node = Member();
  for (int i = 0; i < 10; ++i) {
    node.process.Suspend();
    Run(1s);
    node.process.Resume();
    Run(1s);
  }
  EXPECT_FALSE(node.place_lost) << *node.place_lost;
}

}  // namespace
}  // namespace muster::sim
