// What AwaitEvent() reports on a backend without notifications.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "rendezvous/handler_kit.h"

namespace muster::test {
namespace {

using std::chrono::milliseconds;

class AwaitEventTest : public ::testing::Test {
 protected:
  std::unique_ptr<DynamicRendezvousHandler> Alone(RendezvousSettings settings) {
    return meeting_.Join(std::move(settings), "127.0.0.1", {});
  }
  Cell& cell() const { return *meeting_.cell; }

  Meeting meeting_;
};

/// `waiting` nodes wait for a complete round of one, which is this node's.
void LetWait(Cell& cell, int waiting) {
  cell.Edit([&](RendezvousState& state) {
    for (int i = 0; i < waiting; ++i) {
      const Node node{"waits", i, 0};
      state.wait_list.insert(node);
      state.last_heartbeats[node] = WallTime{1};
    }
  });
}

TEST_F(AwaitEventTest, ReportsWaitingNodesWhereThereIsRoom) {
  const auto node = Alone(QuickSettings(1, 2));
  node->NextRendezvous();
  EXPECT_EQ(node->AwaitEvent(milliseconds(0)), std::nullopt);
  LetWait(cell(), 1);
  const auto event = node->AwaitEvent(kPatience);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, MembershipEvent::Kind::kNodesWaiting);
  EXPECT_EQ(event->waiting, 1);
  EXPECT_EQ(node->AwaitEvent(milliseconds(0)), std::nullopt) << "it knows";
}

TEST_F(AwaitEventTest, DoesNotReportNodesThatWaitForAFullRound) {
  const auto node = Alone(QuickSettings(1, 1));
  node->NextRendezvous();
  LetWait(cell(), 2);
  EXPECT_TRUE(EventuallyTrue([&] { return node->NumNodesWaiting() == 2; }));
  EXPECT_EQ(node->AwaitEvent(milliseconds(0)), std::nullopt);
}

TEST_F(AwaitEventTest, ReportsAgainInTheNextRound) {
  const auto node = Alone(QuickSettings(1, 3));
  node->NextRendezvous();
  LetWait(cell(), 1);
  ASSERT_TRUE(node->AwaitEvent(kPatience));
  cell().Edit([](RendezvousState& state) { state.wait_list.clear(); });
  node->NextRendezvous();
  LetWait(cell(), 1);
  EXPECT_TRUE(node->AwaitEvent(kPatience));
}

// Found by torture, seed 8123, episode 13: the store had been restarted without its document.
TEST_F(AwaitEventTest, ReportsThatOthersHaveBegunAnotherDocument) {
  const auto node = Alone(QuickSettings(1, 2));
  node->NextRendezvous();
  ASSERT_EQ(node->NextRendezvous().round, 1);
  cell().Edit([](RendezvousState& state) { state = RendezvousState(); });
  EXPECT_EQ(node->AwaitEvent(milliseconds(1'200)), std::nullopt) << "there is no node to join";
  cell().Edit([](RendezvousState& state) {
    const Node other{"other", 1, 0};
    state.participants = {{other, 0}};
    state.last_heartbeats = {{other, WallTime{1}}};
    state.complete = true;
  });
  const auto event = node->AwaitEvent(kPatience);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, MembershipEvent::Kind::kNodesWaiting);
}

TEST_F(AwaitEventTest, ANodeThatJoinsAnotherDocumentDoesNotJoinAnEarlierRound) {
  const auto node = Alone(QuickSettings(1, 2));
  node->NextRendezvous();
  ASSERT_EQ(node->NextRendezvous().round, 1);
  cell().Edit([](RendezvousState& state) {
    state = RendezvousState();
    const Node other{"other", 1, 0};
    state.participants = {{other, 0}};
    state.last_heartbeats = {{other, WallTime{1}}};
  });
  ASSERT_TRUE(node->AwaitEvent(kPatience));
  const RendezvousInfo info = node->NextRendezvous();
  EXPECT_EQ(info.round, 2);
  EXPECT_EQ(info.world_size, 2);
}

}  // namespace
}  // namespace muster::test
