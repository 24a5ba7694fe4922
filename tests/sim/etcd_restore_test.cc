// An etcd that is restored from an older backup: what its nodes received since then did not happen
// any more, and each of them must notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "etcd/records.h"
#include "sim/etcd_link_fixture.h"

namespace muster::sim {
namespace {

using Kind = Push::Kind;
using ::testing::HasSubstr;

class EtcdRestoreTest : public EtcdLinkTest {
 protected:
  /// All of these nodes join the next round. Returns its number.
  int64_t Meet(const std::vector<LinkNode*>& all) {
    for (LinkNode* node : all) node->link->Join(60s);
    Run(3s);
    return RoundOf(all);
  }
  /// The round that has exactly these members; -1: none.
  static int64_t RoundOf(const std::vector<LinkNode*>& all) {
    std::set<int64_t> rounds;
    std::set<int64_t> ranks;
    for (const LinkNode* node : all) {
      const Push* place = node->Last(Kind::kComplete);
      if (place == nullptr || place->world_size != std::ssize(all)) return -1;
      rounds.insert(place->round);
      ranks.insert(place->rank);
    }
    return rounds.size() == 1 && ranks.size() == all.size() ? *rounds.begin() : -1;
  }

  /// The cluster ends, and comes back with the data of the backup.
  void Restore(const EtcdState& backup) {
    cluster().Kill(Network::Ending::kNotified);
    Run(100ms);
    etcd.Restore(backup);
    StartCluster();
  }
};

TEST_F(EtcdRestoreTest, EveryMemberIsNotifiedThatItsRoundIsGoneAndAllMeetAgain) {
  settings.min_nodes = settings.max_nodes = 3;
  for (int i = 0; i < 3; ++i) Node();
  const std::vector<LinkNode*> all = Others(nullptr);
  ASSERT_EQ(Meet(all), 0);
  const EtcdState backup = etcd.state();
  ASSERT_EQ(Meet(all), 1);
  Restore(backup);
  Run(1s);  // shorter than any lease
  for (const LinkNode* node : all) {
    ASSERT_TRUE(node->place_lost) << "also the leader";
    EXPECT_THAT(*node->place_lost, HasSubstr("older data"));
  }
  EXPECT_EQ(Meet(all), 2) << "no round is counted twice for a node that remembers it";
  EXPECT_NE(Leader(), nullptr);
}

TEST_F(EtcdRestoreTest, ABackupFromBeforeTheRunTakesEverything) {
  settings.min_nodes = settings.max_nodes = 3;
  const EtcdState backup = etcd.state();
  for (int i = 0; i < 3; ++i) Node();
  const std::vector<LinkNode*> all = Others(nullptr);
  ASSERT_EQ(Meet(all), 0);
  Restore(backup);
  Run(1s);
  for (const LinkNode* node : all) ASSERT_TRUE(node->place_lost);
  EXPECT_EQ(Meet(all), 1);
}

TEST_F(EtcdRestoreTest, ARevisionThatHasCaughtUpHidesNothing) {
  settings.min_nodes = settings.max_nodes = 3;
  for (int i = 0; i < 3; ++i) Node();
  const std::vector<LinkNode*> all = Others(nullptr);
  ASSERT_EQ(Meet(all), 0);
  const EtcdState backup = etcd.state();
  ASSERT_EQ(Meet(all), 1);
  const int64_t revision = etcd.state().revision();
  for (LinkNode* node : all) network.Cut(node->process.host(), there);
  Restore(backup);
  while (etcd.state().revision() <= revision + 10)
    ASSERT_TRUE(Commit({.then = {Put("somebody/else", "")}}));
  network.HealAll();
  Run(2s);
  for (const LinkNode* node : all) ASSERT_TRUE(node->place_lost);
  EXPECT_EQ(Meet(all), 2);
}

TEST_F(EtcdRestoreTest, ALostRequestIsSentAgain) {
  settings.min_nodes = settings.max_nodes = 4;
  Joining();
  Joining();
  LinkNode& third = Node();
  Run(1s);
  const EtcdState backup = etcd.state();
  third.link->Join(60s);
  Run(1s);
  ASSERT_EQ(third.Count(Kind::kAdmitted), 1u);
  Restore(backup);
  Run(1s);
  Joining();
  Run(3s);
  EXPECT_EQ(RoundOf(Others(nullptr)), 0);
}

TEST_F(EtcdRestoreTest, ANodeThatWaitsForTheNextRoundGetsIntoIt) {
  settings.min_nodes = 3;
  settings.max_nodes = 4;
  for (int i = 0; i < 3; ++i) Node();
  const std::vector<LinkNode*> members = Others(nullptr);
  ASSERT_EQ(Meet(members), 0);
  const EtcdState backup = etcd.state();
  LinkNode& waiter = Joining();
  Run(1s);
  ASSERT_EQ(waiter.Count(Kind::kWaiting), 1u);
  Restore(backup);
  Run(2s);
  EXPECT_GE(waiter.Count(Kind::kOpened), 2u);
  for (LinkNode* node : members) node->link->Join(60s);
  Run(5s);
  EXPECT_GE(RoundOf(Others(nullptr)), 1);
}

TEST_F(EtcdRestoreTest, ARoundOfTheSameNumberHasKeysOfItsOwn) {
  settings.min_nodes = settings.max_nodes = 3;
  const EtcdState backup = etcd.state();
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  const std::string before = nodes.begin()->second->Last(Kind::kComplete)->who;
  EXPECT_THAT(before, testing::StartsWith("0-"));
  for (LinkNode* node : Others(nullptr)) node->Kill();
  Bury();
  Restore(backup);
  for (int i = 0; i < 3; ++i) Joining();
  Run(3s);
  ASSERT_EQ(RoundOf(Others(nullptr)), 0);
  const std::string after = nodes.begin()->second->Last(Kind::kComplete)->who;
  EXPECT_THAT(after, testing::StartsWith("0-"));
  EXPECT_NE(before, after);
}

// In the backup its request is not granted yet. The restored etcd grants it once more, with others,
// and has passed every revision that the node knew when the node reaches it again.
TEST_F(EtcdRestoreTest, ARequestThatIsGrantedTwiceShowsThatTheFirstPlaceIsGone) {
  settings.min_nodes = settings.max_nodes = 3;
  settings.keep_alive_max_attempt = 8;  // its lease is longer than all of this
  Joining();
  LinkNode& late = Joining();
  Run(1s);
  const EtcdState backup = etcd.state();
  Joining();
  Run(1s);
  const std::vector<LinkNode*> all = Others(nullptr);
  ASSERT_EQ(RoundOf(all), 0);
  network.Cut(late.process.host(), there);
  Restore(backup);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Commit({.then = {Put("somebody/else", "")}}));
    Run(50ms);
    for (LinkNode* node : Others(&late)) {
      if (node->place_lost && node->Count(Kind::kOpened) == 2) node->link->Join(60s);
    }
  }
  ASSERT_FALSE(late.place_lost);
  ASSERT_GT(Others(&late).front()->Last(Kind::kComplete)->round, 0)
      << "with the request of the late one";
  network.HealAll();
  Run(3s);  // until it tries to connect again
  ASSERT_TRUE(late.place_lost);
  EXPECT_THAT(*late.place_lost, HasSubstr("older data"));
}

// By chance, its notice was written at the same revision in both histories.
TEST_F(EtcdRestoreTest, ANoticeOfTheSameRevisionWithAnotherTextShowsIt) {
  settings.min_nodes = settings.max_nodes = 3;
  settings.keep_alive_max_attempt = 8;
  Joining();
  LinkNode& node = Joining();
  Run(1s);
  const EtcdState backup = etcd.state();
  Joining();
  Run(1s);
  ASSERT_EQ(RoundOf(Others(nullptr)), 0);
  for (LinkNode* other : Others(&node)) other->Kill();  // no other node writes
  const std::string key = keys.Notice({"10.1.0.101", 101, 0});
  const EtcdPair notice = *etcd.state().Find(key);
  const int64_t revision = etcd.state().revision();
  network.Cut(node.process.host(), there);
  Restore(backup);
  while (etcd.state().revision() < notice.changed - 1)
    ASSERT_TRUE(Commit({.then = {Put("somebody/else", "")}}));
  wire::EtcdNotice other = *wire::Read<wire::EtcdNotice>(key, notice.value);
  other.place.rank = (other.place.rank + 1) % 3;
  ASSERT_TRUE(Commit({.then = {Put(key, wire::Write(other))}}));
  ASSERT_EQ(etcd.state().Find(key)->changed, notice.changed);
  while (etcd.state().revision() <= revision)
    ASSERT_TRUE(Commit({.then = {Put("somebody/else", "")}}));
  ASSERT_FALSE(node.place_lost);
  network.HealAll();
  Run(3s);
  ASSERT_TRUE(node.place_lost);
  EXPECT_THAT(*node.place_lost, HasSubstr("older data"));
}

TEST_F(EtcdRestoreTest, ALeaderWhoseKeyIsBackLeads) {
  settings.min_nodes = settings.max_nodes = 2;
  LinkNode& first = Joining();
  LinkNode& second = Joining();
  Run(1s);
  ASSERT_EQ(RoundOf({&first, &second}), 0);
  LinkNode* led = Leader();
  LinkNode* other = led == &first ? &second : &first;
  const EtcdState backup = etcd.state();
  led->process.Pause();  // so that the other one leads next
  ASSERT_TRUE(Commit({.then = {Delete({.begin = keys.Leader()})}}));
  Run(500ms);
  led->process.Resume();
  Joining();  // a spare, so that the leader has something to write
  Run(500ms);
  ASSERT_FALSE(led->link->leads());
  ASSERT_TRUE(other->link->leads());
  const int64_t revision = etcd.state().revision();
  network.Cut(led->process.host(), there);
  Restore(backup);
  while (etcd.state().revision() <= revision)
    ASSERT_TRUE(Commit({.then = {Put("somebody/else", "")}}));
  network.HealAll();
  Run(1s);
  EXPECT_TRUE(led->link->leads()) << "its lease keeps the key, and no other could";
  EXPECT_FALSE(other->link->leads());
}

// It reads the key that is its own again while it campaigns for it. A key that is older than a
// deletion which the node remembers is no reason to campaign again.
TEST_F(EtcdRestoreTest, ANodeThatCampaignsForAKeyThatIsItsOwnAgainLeads) {
  settings.min_nodes = settings.max_nodes = 2;
  LinkNode& only = Node([](std::shared_ptr<Etcd> made, Loop& on) {
    return std::make_shared<SlowEtcd>(std::move(made), on);
  });
  only.link->Join(60s);
  Run(2s);
  ASSERT_TRUE(only.link->leads());
  const EtcdState backup = etcd.state();
  ASSERT_TRUE(Commit({.then = {Delete({.begin = keys.Leader()})}}));
  only.link->Leave();  // so that the leader has something to write, and learns that it is deposed
  while (only.link->leads()) ASSERT_TRUE(scheduler.Step(scheduler.now() + 1min));
  const int64_t revision = etcd.state().revision();
  network.Cut(only.process.host(), there);
  Restore(backup);
  while (etcd.state().revision() <= revision + 10)
    ASSERT_TRUE(Commit({.then = {Put("somebody/else", "")}}));
  network.HealAll();
  only.link->Join(60s);
  Joining();
  Run(4s);
  ASSERT_NE(Leader(), nullptr);
  EXPECT_EQ(RoundOf(Others(nullptr)), 0);
}

// Nodes that came after the backup are not there any more, and the leader is not notified.
TEST_F(EtcdRestoreTest, ALeaderDoesNotWaitForNodesThatTheBackupLacks) {
  settings.min_nodes = settings.max_nodes = 3;
  LinkNode& leader = Joining();
  Run(1s);
  ASSERT_TRUE(leader.link->leads());
  const EtcdState backup = etcd.state();
  LinkNode& dead = Joining();
  Run(1s);
  dead.Kill();
  const int64_t revision = etcd.state().revision();
  network.Cut(leader.process.host(), there);
  Restore(backup);
  while (etcd.state().revision() <= revision)
    ASSERT_TRUE(Commit({.then = {Put("somebody/else", "")}}));
  network.HealAll();
  Run(1s);
  LinkNode& second = Joining();
  Run(1s);
  EXPECT_EQ(second.Count(Kind::kComplete), 0u) << "two of three";
  LinkNode& third = Joining();
  Run(1s);
  EXPECT_GE(RoundOf({&leader, &second, &third}), 0);
}

// Its own record, under a lease that ended long ago, comes back with the backup: it belongs to no
// other node.
TEST_F(EtcdRestoreTest, ANodeThatFindsARecordOfItsPastContinues) {
  settings.min_nodes = settings.max_nodes = 3;
  for (int i = 0; i < 3; ++i) Node();
  const std::vector<LinkNode*> all = Others(nullptr);
  ASSERT_EQ(Meet(all), 0);
  const EtcdState backup = etcd.state();
  LinkNode* paused = Others(Leader()).front();
  paused->process.Pause();
  Run(10s);
  paused->process.Resume();
  ASSERT_EQ(Meet(all), 1);
  Restore(backup);
  Run(1500ms);  // its old lease is longer
  for (const LinkNode* node : all) {
    EXPECT_TRUE(node->place_lost);
    EXPECT_EQ(node->Count(Kind::kRefused), 0u);
  }
  EXPECT_EQ(Meet(all), 2);
}

}  // namespace
}  // namespace muster::sim
