// Several nodes, each on a thread of its own: which get into which round, and as what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "muster/c10d_rendezvous.h"
#include "muster/file_store.h"
#include "muster/tcp_store.h"
#include "rendezvous/agreement.h"
#include "rendezvous/handler_kit.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

using HandlerPtr = std::unique_ptr<DynamicRendezvousHandler>;
std::unique_ptr<NextCall> Next(const HandlerPtr& node) { return test::Next(*node); }

class RoundsTest : public ::testing::Test {
 protected:
  /// Nodes at 127.0.0.1, 127.0.0.2 ...: in the order of their ranks.
  std::vector<HandlerPtr> Nodes(int count, const RendezvousSettings& settings) const {
    std::vector<HandlerPtr> nodes;
    for (int i = 0; i < count; ++i) {
      nodes.push_back(meeting_.Join(settings, "127.0.0." + std::to_string(i + 1)));
    }
    return nodes;
  }
  Cell& cell() const { return *meeting_.cell; }
  bool IsSpare(const HandlerPtr& node) const {
    return cell().State().redundancy_list.contains(NodeNamed(node->node()));
  }
  bool Waits(const HandlerPtr& node) const {
    return cell().State().wait_list.contains(NodeNamed(node->node()));
  }

  Meeting meeting_;
};

/// A node is declared lost after a second.
RendezvousSettings Mortal(int64_t min_nodes, int64_t max_nodes) {
  RendezvousSettings settings = QuickSettings(min_nodes, max_nodes);
  settings.keep_alive_interval = milliseconds(50);
  settings.keep_alive_max_attempt = 20;
  return settings;
}

}  // namespace

TEST_F(RoundsTest, Rdzv107TheThirdByNameIsRankTwoOfThree) {
  const auto nodes = Nodes(3, QuickSettings(3, 3));
  const auto last = Next(nodes[2]);  // whichever node comes first, the order is that of the names
  EXPECT_TRUE(EventuallyTrue([&] { return cell().State().participants.size() == 1; }));
  const auto first = Next(nodes[0]);
  const auto second = Next(nodes[1]);
  const RendezvousInfo info = last->Result();
  EXPECT_EQ(info.rank, 2);
  EXPECT_EQ(info.world_size, 3);
  EXPECT_EQ(first->Result().rank, 0);
  EXPECT_EQ(second->Result().rank, 1);
}

TEST_F(RoundsTest, Rdzv125TwoNodesGetDifferentRanks) {
  const auto nodes = Nodes(2, QuickSettings(2, 2));
  for (int64_t round = 0; round < 3; ++round) {
    const auto infos = NextOfAll(nodes);
    ExpectAgreement(infos);
    EXPECT_EQ(infos[0].round, round);
    infos[0].store->Set("from", "one");
    EXPECT_EQ(infos[1].store->Get("from"), "one");
  }
}

TEST_F(RoundsTest, SixteenNodesAgreeInEveryRound) {
  const auto nodes = Nodes(16, QuickSettings(16, 16));
  for (int64_t round = 0; round < 3; ++round) {
    const auto infos = NextOfAll(nodes);
    ExpectAgreement(infos);
    EXPECT_EQ(infos[0].round, round);
  }
}

TEST_F(RoundsTest, Rdzv126TheThirdNodeIsASpare) {
  const auto nodes = Nodes(3, QuickSettings(2, 2));
  const auto second = Next(nodes[1]);
  nodes[0]->NextRendezvous();
  second->Result();
  const auto third = Next(nodes[2]);
  EXPECT_TRUE(EventuallyTrue([&] { return IsSpare(nodes[2]); }));
  const RendezvousState state = cell().State();
  ASSERT_THAT(state.redundancy_list, SizeIs(1));
  EXPECT_EQ(state.redundancy_list.begin()->addr, "127.0.0.3");
  EXPECT_THAT(state.wait_list, IsEmpty());
  EXPECT_EQ(nodes[0]->NumNodesWaiting(), 0);
  EXPECT_TRUE(
      EventuallyTrue([&] { return nodes[2]->DescribeWait().phase == WaitReport::Phase::kSpare; }));
  EXPECT_EQ(nodes[2]->DescribeWait().time_left, std::nullopt) << "a spare waits without limit";
  nodes[0]->SetClosed();
  EXPECT_THROW(third->Result(), RendezvousGracefulExitError);
}

TEST_F(RoundsTest, Rdzv127ASpareTakesThePlaceOfTheDead) {
  auto nodes = Nodes(3, Mortal(2, 2));
  const auto second = Next(nodes[1]);
  nodes[0]->NextRendezvous();
  second->Result();
  const auto third = Next(nodes[2]);
  EXPECT_TRUE(EventuallyTrue([&] { return IsSpare(nodes[2]); }));
  nodes[1].reset();  // no leave: it just falls silent
  EXPECT_TRUE(EventuallyTrue([&] { return Waits(nodes[2]); }));
  EXPECT_FALSE(IsSpare(nodes[2]));
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[0]->NumNodesWaiting() == 1; }));
  const RendezvousInfo info = nodes[0]->NextRendezvous();
  EXPECT_EQ(info.round, 1);
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(third->Result().rank, 1);
}

TEST_F(RoundsTest, Rdzv128ALateNodeWaitsAndAllThreeFormTheNextRound) {
  RendezvousSettings settings = QuickSettings(2, 3);
  settings.last_call = kPatience;
  const auto nodes = Nodes(3, settings);
  const auto first = Next(nodes[0]);
  const auto second = Next(nodes[1]);
  EXPECT_TRUE(EventuallyTrue([&] { return cell().State().participants.size() == 2; }));
  cell().Edit([](RendezvousState& state) {  // a node whose last call is over
    state.complete = true;
    state.deadline.reset();
    int64_t rank = 0;
    for (auto& [node, its_rank] : state.participants) its_rank = rank++;
  });
  EXPECT_EQ(first->Result().world_size, 2);
  EXPECT_EQ(second->Result().round, 0);

  const auto third = Next(nodes[2]);
  EXPECT_TRUE(EventuallyTrue([&] { return Waits(nodes[2]); }));
  EXPECT_THAT(cell().State().redundancy_list, IsEmpty());
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[0]->NumNodesWaiting() == 1; }));
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[1]->NumNodesWaiting() == 1; }));
  EXPECT_TRUE(EventuallyTrue(
      [&] { return nodes[2]->DescribeWait().phase == WaitReport::Phase::kNextRound; }));
  EXPECT_EQ(nodes[2]->DescribeWait().awaited, 2);

  const auto first_again = Next(nodes[0]);
  const auto second_again = Next(nodes[1]);
  const std::vector infos = {first_again->Result(), second_again->Result(), third->Result()};
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1);
  EXPECT_EQ(nodes[0]->NumNodesWaiting(), 0);
}

TEST_F(RoundsTest, Rdzv129ASpareLeavesQuietlyWhenTheRendezvousIsClosed) {
  const auto nodes = Nodes(2, QuickSettings(1, 1));
  nodes[0]->NextRendezvous();
  const auto spare = Next(nodes[1]);
  EXPECT_TRUE(EventuallyTrue([&] { return IsSpare(nodes[1]); }));
  nodes[0]->SetClosed("the work is done");
  EXPECT_THAT(
      ErrorOf<RendezvousGracefulExitError>([&] { spare->Result(); }),
      AllOf(HasSubstr("'run'"), HasSubstr(nodes[0]->node()), HasSubstr("the work is done")));
}

TEST_F(RoundsTest, AWaiterIsTurnedAwayWhenTheRendezvousIsClosed) {
  const auto nodes = Nodes(2, QuickSettings(2, 3));
  const auto waiting = Next(nodes[0]);
  EXPECT_TRUE(EventuallyTrue([&] { return cell().State().participants.size() == 1; }));
  nodes[1]->SetClosed("stop");
  EXPECT_THAT(ErrorOf<RendezvousClosedError>([&] { waiting->Result(); }),
              HasSubstr(nodes[1]->node() + ": stop"));
}

TEST_F(RoundsTest, AMemberThatLeavesMakesRoomAtOnce) {
  const auto nodes = Nodes(3, QuickSettings(2, 2));
  const auto second = Next(nodes[1]);
  nodes[0]->NextRendezvous();
  second->Result();
  const auto third = Next(nodes[2]);
  EXPECT_TRUE(EventuallyTrue([&] { return IsSpare(nodes[2]); }));
  nodes[1]->Leave();
  EXPECT_FALSE(cell().State().participants.contains(NodeNamed(nodes[1]->node())));
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[0]->NumNodesWaiting() == 1; }));
  EXPECT_EQ(nodes[0]->NextRendezvous().world_size, 2);
  EXPECT_EQ(third->Result().rank, 1);
}

TEST_F(RoundsTest, OtherThreadsCanReadWhatACallWaitsFor) {
  const auto nodes = Nodes(3, QuickSettings(3, 3));
  EXPECT_EQ(nodes[0]->DescribeWait(), WaitReport());
  const auto first = Next(nodes[0]);
  std::atomic<bool> over = false;
  Background<int> reader([&] {
    int told = 0;
    while (!over) told += nodes[0]->DescribeWait().ToString().empty() ? 0 : 1;
    return told;
  });
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[0]->DescribeWait().awaited == 2; }));
  const auto second = Next(nodes[1]);
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[0]->DescribeWait().awaited == 1; }));
  EXPECT_THAT(nodes[0]->DescribeWait().joined, ElementsAre(nodes[0]->node(), nodes[1]->node()));
  EXPECT_THAT(nodes[0]->DescribeWait().ToString(),
              AllOf(HasSubstr("2 of 3 nodes are here"), HasSubstr("1 more is needed")));
  nodes[2]->NextRendezvous();
  first->Result();
  second->Result();
  over = true;
  EXPECT_GT(reader.Result(), 0);
  const WaitReport report = nodes[0]->DescribeWait();
  EXPECT_EQ(report.phase, WaitReport::Phase::kComplete);
  EXPECT_EQ(report.time_left, std::nullopt);
}

TEST_F(RoundsTest, ABackendThatStandsStillCostsNoNodeItsPlace) {
  const auto nodes = Nodes(3, Mortal(3, 3));
  InParallel(3, [&](int index) { nodes[static_cast<size_t>(index)]->NextRendezvous(); });
  std::atomic<bool> stalled = true;
  cell().SetHook([&](bool) { EventuallyTrue([&] { return !stalled; }); });
  Take(milliseconds(1'500));  // longer than any node may be silent
  stalled = false;
  const Stopwatch watch;
  while (watch.Elapsed() < milliseconds(1'000)) {
    for (const HandlerPtr& node : nodes) EXPECT_EQ(node->NumNodesWaiting(), 0);
    ASSERT_EQ(cell().State().participants.size(), 3u);
    ASSERT_EQ(cell().State().round, 0);
  }
  cell().SetHook({});
}

TEST_F(RoundsTest, AMemberThatLeavesAtOnceStillCounts) {
  const auto node = meeting_.Join(QuickSettings(2, 2), "127.0.0.2");
  const auto joining = Next(node);
  EXPECT_TRUE(EventuallyTrue([&] { return cell().State().participants.size() == 1; }));
  meeting_.store->Set("torch.rendezvous.run.0/MASTER_ADDR", "127.0.0.1");
  meeting_.store->Set("torch.rendezvous.run.0/MASTER_PORT", "4711");
  cell().Edit([&](RendezvousState& state) {  // another node completed the round and was gone again
    state.complete = true;
    state.participants = {{NodeNamed(node->node()), 1}};
    state.completion = {.round = 0, .world_size = 2};
  });
  const RendezvousInfo info = joining->Result();
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.world_size, 2);
}

TEST_F(RoundsTest, ClosingFromManyNodesAtOnceLeavesOneName) {
  const auto nodes = Nodes(8, QuickSettings(8, 8));
  InParallel(8, [&](int index) {
    nodes[static_cast<size_t>(index)]->SetClosed("node " + std::to_string(index));
  });
  EXPECT_TRUE(cell().State().closed);
  int names = 0;
  for (const auto& node : nodes) names += cell().State().closed_by.starts_with(node->node());
  EXPECT_EQ(names, 1) << cell().State().closed_by;
}

TEST_F(RoundsTest, LookingAndClosingDoNotDisturbHeartbeats) {
  const auto node = meeting_.Join(QuickSettings(1, 1));
  node->NextRendezvous();
  const Node self = NodeNamed(node->node());
  WallTime seen = cell().State().last_heartbeats.at(self);
  for (int beats = 0; beats < 5;) {
    EXPECT_EQ(node->NumNodesWaiting(), 0);
    EXPECT_FALSE(node->IsClosed());
    EXPECT_GE(node->cost().writes, 1);
    const WallTime now = cell().State().last_heartbeats.at(self);
    if (now != seen) ++beats;
    seen = now;
  }
  node->SetClosed();
  EXPECT_TRUE(node->IsClosed());
}

TEST(RoundsOnStoresTest, TwoNodesMeetInAFile) {
  const TempDir folder;
  const auto join = [&](const std::string& addr) {
    auto store = std::make_shared<FileStore>(folder.File("store"));
    auto backend = CreateC10dBackend(store->Clone(), "run");
    return CreateDynamicHandler(QuickSettings(2, 2), store, std::move(backend), addr);
  };
  std::vector<HandlerPtr> nodes;
  nodes.push_back(join("127.0.0.1"));
  nodes.push_back(join("127.0.0.2"));
  for (int round = 0; round < 2; ++round) ExpectAgreement(NextOfAll(nodes));
  EXPECT_TRUE(nodes[0]->Shutdown());
  EXPECT_THROW(nodes[1]->NextRendezvous(), RendezvousClosedError);
}

TEST(RoundsOnStoresTest, HeartbeatsContinueWhileACallBlocksInTheStoreOfTheRound) {
  const RendezvousParameters parameters("c10d", "localhost:0", "run", 1, 1, "127.0.0.1",
                                        {{"is_host", true}, {"read_timeout", int64_t{20}}});
  auto [backend, store] = CreateC10dBackend(parameters);
  const std::shared_ptr<Store> outside = store->Clone();
  const auto made =
      CreateDynamicHandler(QuickSettings(1, 1), store, std::move(backend), "127.0.0.1");
  DynamicRendezvousHandler& node = *made;
  const RendezvousInfo info = node.NextRendezvous();
  Background<std::string> blocked([&] { return info.store->Get("never"); });
  EXPECT_TRUE(blocked.UntilBlocked());
  std::set<std::string> values;
  EXPECT_TRUE(EventuallyTrue([&] {
    values.insert(outside->Get("torch.rendezvous.run"));
    return values.size() > 5;
  })) << "each heartbeat is another value";
  EXPECT_FALSE(node.IsClosed());
  EXPECT_TRUE(node.Shutdown());
  EXPECT_FALSE(blocked.IsDone());
  outside->Set("torch.rendezvous.run.0/never", "now");
  EXPECT_EQ(blocked.Result(), "now");
}

TEST(RoundsOnStoresTest, AnOldNoticeDoesNotMakeAWaiterSpin) {
  const auto store = HashStore::Create();
  // Left behind by a rendezvous of the same name, whose state was removed.
  store->Set("torch.rendezvous.run.0/MUSTER_COMPLETE", "1");
  store->Set("torch.rendezvous.run.0/MUSTER_OVER", "1");
  RendezvousSettings settings = QuickSettings(2, 2);
  settings.join_timeout = milliseconds(400);
  const auto made =
      CreateDynamicHandler(settings, store, CreateC10dBackend(store, "run"), "127.0.0.1");
  DynamicRendezvousHandler& node = *made;
  EXPECT_THROW(node.NextRendezvous(), RendezvousTimeoutError);
  EXPECT_LT(node.cost().reads, 100);
}

}  // namespace muster::test
