// The backend "muster" when the network or the server fails, or is late.
#include "muster/network.h"
#include "muster/tcp_store.h"
#include "rendezvous/coordinated_kit.h"
#include "store/free_socket.h"
#include "support/errors.h"
#include "support/proxy.h"

namespace muster::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = MembershipEvent::Kind;

class CoordinatedNetworkTest : public CoordinatedTest {
 protected:
  /// One node through the proxy, and one directly.
  std::vector<CoordinatedPtr> TwoNodes(milliseconds grace) {
    CoordinatedRendezvousOptions options = Options(1, 2);
    options.grace = grace;
    std::vector<CoordinatedPtr> nodes;
    nodes.push_back(Node(options));
    options.port = proxy_.port();
    nodes.push_back(Node(options));
    return nodes;
  }

  Proxy proxy_{port_};
};

TEST_F(CoordinatedNetworkTest, ACutConnectionIsTakenUpAgainWithinItsGrace) {
  const auto nodes = TwoNodes(kPatience);
  ExpectAgreement(NextOfAll(nodes));
  for (int cuts = 1; cuts <= 3; ++cuts) {
    const int before = proxy_.connections();
    proxy_.Cut();
    ASSERT_TRUE(EventuallyTrue([&] { return proxy_.connections() > before; }));
  }
  // The session works: a request through it is answered.
  nodes[1]->SetClosed("still here");
  const MembershipEvent event = EventOf(*nodes[0]);
  EXPECT_EQ(event.kind, Kind::kClosed) << "and no node was ever lost: " << event.ToString();
  EXPECT_EQ(EventOf(*nodes[1]).kind, Kind::kClosed);
}

TEST_F(CoordinatedNetworkTest, BeyondItsGraceTheNodeIsLostAndANewRoundForms) {
  const auto nodes = TwoNodes(milliseconds(50));
  ExpectAgreement(NextOfAll(nodes));
  proxy_.Block(true);
  proxy_.Cut();
  EXPECT_EQ(EventOf(*nodes[0]).kind, Kind::kMemberLost);
  proxy_.Block(false);
  const MembershipEvent event = EventOf(*nodes[1]);
  EXPECT_EQ(event.kind, Kind::kPlaceLost);
  EXPECT_EQ(nodes[1]->NumNodesWaiting(), 1) << "it is itself the one to come";
  const auto infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1);
  infos[0].store->Set("key", "value");
  EXPECT_EQ(infos[1].store->Get("key"), "value") << "through a new connection";
}

TEST_F(CoordinatedNetworkTest, AJoinSurvivesACut) {
  auto nodes = TwoNodes(kPatience);
  const auto waits = Next(*nodes[1]);
  EXPECT_TRUE(Says(*nodes[1], "1 of 2"));
  const int before = proxy_.connections();
  proxy_.Cut();
  ASSERT_TRUE(EventuallyTrue([&] { return proxy_.connections() > before; }));
  EXPECT_EQ(nodes[0]->NextRendezvous().world_size, 2);
  EXPECT_EQ(waits->Result().world_size, 2);
}

TEST_F(CoordinatedNetworkTest, ALeaveWhoseConnectionBreaksIsSentAgainOnTheNext) {
  const auto nodes = TwoNodes(kPatience);
  ExpectAgreement(NextOfAll(nodes));
  proxy_.Block(true);
  proxy_.Cut();
  nodes[1]->Leave();  // no server receives it
  const auto waits = Next(*nodes[0]);
  proxy_.Block(false);
  EXPECT_EQ(waits->Result().world_size, 1) << "the round of two is over only when both have left";
}

TEST_F(CoordinatedNetworkTest, LeavingTwiceOrAPlaceThatIsLostIsAnsweredAtOnce) {
  CoordinatedRendezvousOptions options = Options(1, 1);
  options.close_timeout = kPatience * 10;  // a test that waits for it does not end
  const auto node = Node(options);
  node->NextRendezvous();
  node->Leave();
  node->Leave();
  EXPECT_EQ(node->NextRendezvous().round, 1);
}

TEST_F(CoordinatedTest, ARefusedNodeMayTryAgain) {
  auto first = Node(1, 2);
  EXPECT_EQ(first->NextRendezvous().world_size, 1);
  const auto other = Node(1, 3);
  EXPECT_THAT(ErrorOf<RendezvousError>([&] { other->NextRendezvous(); }), HasSubstr("max_nodes"));
  first.reset();  // and with it the nodes with other settings
  EXPECT_TRUE(EventuallyTrue([&] {
    try {
      return other->NextRendezvous().world_size == 1;
    } catch (const RendezvousError&) {
      return false;
    }
  }));
}

TEST_F(CoordinatedTest, NodesComeBackToARestartedServer) {
  const auto nodes = Nodes(3, 3, 3);
  ExpectAgreement(NextOfAll(nodes));
  server_.reset();
  EXPECT_TRUE(EventuallyTrue([&] {
    try {
      server_ = std::make_unique<StoreServer>(AtPort(port_));
    } catch (const NetworkError&) {
    }
    return server_ != nullptr;
  }));
  for (const auto& node : nodes) {
    const MembershipEvent event = EventOf(*node);
    EXPECT_EQ(event.kind, Kind::kPlaceLost) << event.ToString();
  }
  const auto infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1) << "no round's number is given twice";
  infos[0].store->Set("key", "value");
  EXPECT_EQ(infos[2].store->Get("key"), "value");
}

TEST_F(CoordinatedTest, NodesThatCameBeforeTheServerWaitForIt) {
  server_.reset();
  const auto nodes = Nodes(2, 2, 2);
  const auto first = Next(*nodes[0]);
  const auto second = Next(*nodes[1]);
  EXPECT_TRUE(
      Says(*nodes[0], "the server at 127.0.0.1:" + std::to_string(port_) + " is out of reach"));
  server_ = std::make_unique<StoreServer>(AtPort(port_));
  ExpectAgreement({first->Result(), second->Result()});
}

TEST_F(CoordinatedTest, AServerThatNeverComesIsNamed) {
  server_.reset();
  CoordinatedRendezvousOptions options = Options(1, 1);
  options.join_timeout = milliseconds(100);
  const auto node = Node(options);
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr("127.0.0.1:" + std::to_string(port_)), HasSubstr("100 ms"),
                    HasSubstr("refused")));
}

TEST_F(CoordinatedTest, OfSeveralNodesOnTheMachineOneHosts) {
  server_.reset();
  const uint16_t port = FreePort();
  std::vector<CoordinatedPtr> nodes;
  for (int i = 0; i < 3; ++i) {
    CoordinatedRendezvousOptions options = Options(3, 3);
    options.host = "localhost";
    options.port = port;
    options.is_host.reset();
    nodes.push_back(Node(options));
  }
  EXPECT_TRUE(nodes[0]->IsHost());
  ExpectAgreement(NextOfAll(nodes));
}

TEST_F(CoordinatedTest, ANodeThatMustHostAndCannotReportsIt) {
  CoordinatedRendezvousOptions options = Options(1, 1);
  options.is_host = true;
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] { Node(options); }),
              HasSubstr(std::to_string(port_)));
}

TEST_F(CoordinatedTest, ASilentServerCostsTheTimeoutAndNoMore) {
  const ListeningSocket silent = FreeSocket();  // accepts, as the kernel does, and never answers
  CoordinatedRendezvousOptions options = Options(1, 1);
  options.port = silent.port();
  options.join_timeout = milliseconds(300);
  const auto node = Node(options);
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] { node->NextRendezvous(); }),
              HasSubstr("300 ms"));
}

}  // namespace
}  // namespace muster::test
