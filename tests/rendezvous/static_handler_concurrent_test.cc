// The static rendezvous with several nodes, and its reports while it waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "muster/static_rendezvous.h"
#include "muster/store_server.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/raw_socket.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

RendezvousHandlerPtr Node(uint16_t port, int64_t rank, int64_t nodes, std::string timeout = "30") {
  return CreateStaticHandler(
      RendezvousParameters("static", "127.0.0.1:" + std::to_string(port), "run-1", 1, nodes, "",
                           {{"rank", rank}, {"timeout", std::move(timeout)}}));
}

/// Rank 0's server, which rank 0 then shares. The port is known beforehand, no other process can
/// take it, and it is open on loopback only.
class StaticNodesTest : public ::testing::Test {
 protected:
  uint16_t port() const { return server_->port(); }

  const std::shared_ptr<StoreServer> server_ =
      StoreServer::Shared({.host = "127.0.0.1", .threads = 1});
};

}  // namespace

TEST_F(StaticNodesTest, Rdzv172_EveryNodeHasItsRankTwiceInARow) {
  InParallel(3, [this](int rank) {
    const auto node = Node(port(), rank, 3);
    for (int round = 0; round < 2; ++round) {
      const RendezvousInfo info = node->NextRendezvous();
      EXPECT_EQ(info.rank, rank);
      EXPECT_EQ(info.world_size, 3);
      EXPECT_EQ(info.bootstrap_store_info, (RendezvousStoreInfo{"127.0.0.1", port()}));
      info.store->Set("from" + std::to_string(rank), "here");
      info.store->Wait({"from0", "from1", "from2"}, kPatience);
    }
    EXPECT_EQ(node->DescribeWait().phase, WaitReport::Phase::kComplete);
    EXPECT_THAT(node->DescribeWait().joined, ElementsAre("rank 0", "rank 1", "rank 2"));
    EXPECT_EQ(node->DescribeWait().here, 3);
  });
}

TEST_F(StaticNodesTest, Rank0ReportsThatItWaitsForTheOthers) {
  const auto first = Node(port(), 0, 2);
  Background<RendezvousInfo> waiting([&] { return first->NextRendezvous(); });
  EXPECT_TRUE(
      EventuallyTrue([&] { return first->DescribeWait().phase == WaitReport::Phase::kForming; }));
  const WaitReport report = first->DescribeWait();
  EXPECT_EQ(report.run_id, "run-1");
  EXPECT_EQ(report.max_nodes, 2);
  EXPECT_EQ(report.awaited, 1);
  EXPECT_THAT(report.joined, ElementsAre("rank 0"));
  EXPECT_EQ(report.here, 1);
  ASSERT_TRUE(report.time_left);
  EXPECT_LE(*report.time_left, seconds(30));
  EXPECT_FALSE(waiting.IsDone());
  Node(port(), 1, 2)->NextRendezvous();
  EXPECT_EQ(waiting.Result().rank, 0);
  EXPECT_EQ(first->DescribeWait().phase, WaitReport::Phase::kComplete);
}

TEST_F(StaticNodesTest, Rank0FailsWithTheStoresErrorWhenTheOthersDoNotCome) {
  const auto alone = Node(port(), 0, 3, "1");
  const std::string text = ErrorOf<StoreTimeoutError>([&] { alone->NextRendezvous(); });
  EXPECT_THAT(text, AllOf(HasSubstr("'run-1'"), HasSubstr("rank 0 of 3"),
                          HasSubstr("127.0.0.1:" + std::to_string(port())), HasSubstr("1/3")));
  EXPECT_EQ(alone->DescribeWait().phase, WaitReport::Phase::kIdle);
}

TEST(StaticNodeTest, WithoutRank0ItIsANetworkErrorAndTheNextCallTriesAgain) {
  const BoundSocket bound = BindLoopback();
  const auto node = Node(bound.port, 1, 2, "2");
  EXPECT_THAT(ErrorOf<NetworkError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr("rank 1 of 2"), HasSubstr("see that rank 0 runs there")));
  EXPECT_EQ(node->DescribeWait().phase, WaitReport::Phase::kIdle);
  const StoreServer server({.port = bound.port, .listen_fd = bound.fd, .threads = 1});
  EXPECT_EQ(node->NextRendezvous().rank, 1);
}

}  // namespace muster::test
