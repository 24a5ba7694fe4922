// How the nodes of a round learn where its workers meet, for each kind of rank 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "rendezvous/handler_kit.h"
#include "rendezvous/recording_store.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/raw_socket.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

using HandlerPtr = std::unique_ptr<DynamicRendezvousHandler>;
using NextCall = Background<RendezvousInfo>;

constexpr const char* kVariable = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";

std::unique_ptr<NextCall> Next(const HandlerPtr& node) {
  return std::make_unique<NextCall>([&node] { return node->NextRendezvous(); });
}

std::string Key(int64_t round, const std::string& name) {
  return "torch.rendezvous.run." + std::to_string(round) + "/" + name;
}

/// The store at the address, as a worker sees it.
std::unique_ptr<TcpStore> Visit(const RendezvousStoreInfo& at) {
  return std::make_unique<TcpStore>(at.master_addr,
                                    TcpStoreOptions{.port = at.master_port, .timeout = kPatience});
}

class BootstrapTest : public ::testing::Test {
 protected:
  HandlerPtr Join(int64_t nodes, const std::string& addr) const {
    return meeting_.Join(QuickSettings(nodes, nodes), addr);
  }

  /// The next node that joins completes this round, as rank 1 after a node at `addr` that does
  /// nothing more.
  void AwaitOneMore(int64_t round, const std::string& addr) const {
    meeting_.cell->Edit([&](RendezvousState& state) {
      const Node first{addr, 1, 0};
      state.round = round;
      state.participants = {{first, 0}};
      state.last_heartbeats = {{first, WallTime{1}}};
    });
  }

  void Publish(int64_t round, const RendezvousStoreInfo& info) const {
    meeting_.store->Set(Key(round, "MASTER_ADDR"), info.master_addr);
    meeting_.store->Set(Key(round, "MASTER_PORT"), std::to_string(info.master_port));
  }

  const ScopedVariable default_{kVariable, nullptr};
  Meeting meeting_;
};

}  // namespace

TEST_F(BootstrapTest, Rdzv131OneServerServesAllRounds) {
  const auto node = Join(1, "127.0.0.1");
  const RendezvousStoreInfo first = node->NextRendezvous().bootstrap_store_info;
  for (int round = 1; round < 4; ++round) {
    Visit(first)->Set("from the round before", "1");
    EXPECT_EQ(node->NextRendezvous().bootstrap_store_info, first);
    // Not the same store, as in PyTorch: workers must not find keys of earlier ones.
    EXPECT_FALSE(Visit(first)->Check({"from the round before"}));
  }
  const auto other = Join(1, "127.0.0.1");
  meeting_.cell->Put(RendezvousState());
  EXPECT_NE(other->NextRendezvous().bootstrap_store_info.master_port, first.master_port);
}

TEST_F(BootstrapTest, Rdzv132ThePortIsTheServersAndItsStoreIsNotTheOneOfTheRendezvous) {
  const auto node = Join(1, "127.0.0.1");
  const RendezvousInfo info = node->NextRendezvous();
  const auto workers = Visit(info.bootstrap_store_info);
  workers->Set("key", "of the workers");
  EXPECT_FALSE(meeting_.store->Check({"key"}));
  EXPECT_FALSE(info.store->Check({"key"}));
  EXPECT_FALSE(workers->Check({Key(0, "MASTER_ADDR")}));
  EXPECT_EQ(meeting_.store->Get(Key(0, "MASTER_PORT")),
            std::to_string(info.bootstrap_store_info.master_port));
}

TEST_F(BootstrapTest, Rdzv133WithoutSharingEveryRoundIsPublishedAgainAndNothingIsServed) {
  const ScopedVariable disabled(kVariable, "1");
  const auto first = Join(2, "127.0.0.1");
  const auto second = Join(2, "127.0.0.2");
  EXPECT_FALSE(first->UseAgentStore());
  for (int64_t round = 0; round < 3; ++round) {
    const auto other = Next(second);
    const RendezvousStoreInfo info = first->NextRendezvous().bootstrap_store_info;
    EXPECT_EQ(other->Result().bootstrap_store_info, info);
    EXPECT_EQ(info.master_addr, "127.0.0.1");
    EXPECT_EQ(meeting_.store->Get(Key(round, "MASTER_PORT")), std::to_string(info.master_port));
    // Worker 0 can serve there.
    EXPECT_NO_THROW(StoreServer({.host = "127.0.0.1", .port = info.master_port, .threads = 1}));
  }
}

TEST_F(BootstrapTest, Rdzv134AnyOtherValueLeavesSharingOn) {
  const auto node = Join(1, "127.0.0.1");
  EXPECT_TRUE(node->UseAgentStore());
  for (const char* value : {"0", "", "true", "2", "01", " 1", "1 "}) {
    const ScopedVariable variable(kVariable, value);
    EXPECT_TRUE(node->UseAgentStore()) << "'" << value << "'";
    EXPECT_NO_THROW(Visit(node->NextRendezvous().bootstrap_store_info)->Ping());
  }
  const ScopedVariable variable(kVariable, "1");
  EXPECT_FALSE(node->UseAgentStore()) << "it is looked at each time";
}

TEST_F(BootstrapTest, Rdzv135BothKeysAreInEveryRoundTheAddressFirst) {
  const auto store = std::make_shared<RecordingStore>();
  meeting_.store = store;
  const auto node = Join(1, "127.0.0.1");
  for (int64_t round = 0; round < 3; ++round) {
    node->NextRendezvous();
    EXPECT_TRUE(store->Check({Key(round, "MASTER_ADDR"), Key(round, "MASTER_PORT")}));
    const auto asked = store->Taken();
    const auto addr = std::ranges::find(asked, "set " + Key(round, "MASTER_ADDR"));
    const auto port = std::ranges::find(asked, "set " + Key(round, "MASTER_PORT"));
    ASSERT_NE(addr, asked.end());
    ASSERT_NE(port, asked.end());
    EXPECT_LT(addr, port);
  }
}

TEST_F(BootstrapTest, Rdzv136ANodeThatBecomesRank0ServesAndAllFollow) {
  auto oldest = Join(2, "127.0.0.1");
  const auto survivor = Join(2, "127.0.0.2");
  const auto call = Next(survivor);
  EXPECT_EQ(oldest->NextRendezvous().bootstrap_store_info.master_addr, "127.0.0.1");
  EXPECT_EQ(call->Result().rank, 1);
  oldest->Leave();
  oldest.reset();

  const auto newcomer = Join(2, "127.0.0.3");
  const auto joining = Next(newcomer);
  const RendezvousInfo promoted = survivor->NextRendezvous();
  EXPECT_EQ(promoted.rank, 0);
  EXPECT_EQ(promoted.bootstrap_store_info.master_addr, "127.0.0.2");
  EXPECT_EQ(joining->Result().bootstrap_store_info, promoted.bootstrap_store_info);
  EXPECT_NO_THROW(Visit(promoted.bootstrap_store_info)->Ping());
}

TEST_F(BootstrapTest, Rdzv136AnOldRank0FollowsANewNodeThatSortsFirst) {
  auto leaver = Join(2, "127.0.0.3");
  const auto old = Join(2, "127.0.0.2");
  const auto call = Next(leaver);
  EXPECT_EQ(old->NextRendezvous().rank, 0);
  call->Result();
  leaver->Leave();
  leaver.reset();

  const auto newcomer = Join(2, "127.0.0.1");
  const auto joining = Next(newcomer);
  const RendezvousInfo follows = old->NextRendezvous();
  EXPECT_EQ(follows.rank, 1);
  EXPECT_EQ(follows.bootstrap_store_info.master_addr, "127.0.0.1");
  EXPECT_EQ(joining->Result().bootstrap_store_info, follows.bootstrap_store_info);
}

// --- Rank 0 is a PyTorch agent, which has published once and does not again ---

TEST_F(BootstrapTest, Rdzv137ALateJoinerFindsWhatATorchRank0PublishedEarlier) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  const RendezvousStoreInfo served{"127.0.0.1", server.port()};
  Publish(2, served);
  AwaitOneMore(5, "127.0.0.1");
  meeting_.store->SetTimeout(milliseconds(100));
  const auto node = Join(2, "127.0.0.2");
  const RendezvousInfo info = node->NextRendezvous();
  EXPECT_EQ(info.round, 5);
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.bootstrap_store_info, served);
}

TEST_F(BootstrapTest, Rdzv137WhatOthersPublishedEarlierIsNotTakenForIt) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  const BoundSocket no_server = BindLoopback();
  Publish(0, {"127.0.0.9", server.port()});   // of a node that is not rank 0 now
  Publish(1, {"127.0.0.1", no_server.port});  // where no server listens any more
  Publish(2, {"127.0.0.1", server.port()});   // by a muster node, which publishes in every round
  meeting_.store->Set(Key(2, "MUSTER_RANK_0"), "127.0.0.1");
  meeting_.store->Set(Key(3, "MASTER_ADDR"), "127.0.0.1");  // by half
  AwaitOneMore(4, "127.0.0.1");
  meeting_.store->SetTimeout(milliseconds(50));
  const auto node = Join(2, "127.0.0.2");
  EXPECT_THAT(ErrorOf<RendezvousTimeoutError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr("rank 0 of round 4"), HasSubstr("MASTER_ADDR")));
  EXPECT_TRUE(EventuallyTrue([] { return HeartbeatThreads().size() == 1; }))
      << "it is in the round nevertheless, and alive";
  close(no_server.fd);
}

TEST_F(BootstrapTest, AWaitForRank0IsReported) {
  AwaitOneMore(0, "127.0.0.1");
  const auto node = Join(2, "127.0.0.2");
  const auto call = Next(node);
  EXPECT_TRUE(
      EventuallyTrue([&] { return node->DescribeWait().phase == WaitReport::Phase::kBootstrap; }));
  EXPECT_THAT(node->DescribeWait().ToString(), HasSubstr("waiting for rank 0 (127.0.0.1_1_0)"));
  Publish(0, {"127.0.0.1", 4711});
  EXPECT_EQ(call->Result().bootstrap_store_info, (RendezvousStoreInfo{"127.0.0.1", 4711}));
  EXPECT_EQ(node->DescribeWait().phase, WaitReport::Phase::kComplete);
}

TEST_F(BootstrapTest, NonsenseInTheKeysIsAStateError) {
  meeting_.store->Set(Key(0, "MASTER_ADDR"), "127.0.0.1");
  meeting_.store->Set(Key(0, "MASTER_PORT"), "a port");
  AwaitOneMore(0, "127.0.0.1");
  const auto node = Join(2, "127.0.0.2");
  EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { node->NextRendezvous(); }),
              HasSubstr("'a port'"));
  EXPECT_EQ(node->DescribeWait().phase, WaitReport::Phase::kComplete);
}

}  // namespace muster::test
