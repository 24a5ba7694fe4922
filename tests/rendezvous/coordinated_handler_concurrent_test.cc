// The backend "muster" for its users: rounds, losses, spares, the end.
#include "muster/prefix_store.h"
#include "muster/rendezvous_registry.h"
#include "muster/tcp_store.h"
#include "rendezvous/coordinated_kit.h"
#include "support/errors.h"

namespace muster::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = MembershipEvent::Kind;
using Phase = WaitReport::Phase;

TEST_F(CoordinatedTest, NodesAgreeAndShareAStoreAndAMeetingPlace) {
  const auto nodes = Nodes(4, 4, 4);
  const auto infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 0);
  infos[0].store->Set("from", "one");
  EXPECT_EQ(infos[3].store->Get("from"), "one");
  const RendezvousStoreInfo& master = infos[0].bootstrap_store_info;
  EXPECT_EQ(master.master_addr, "127.0.0.1");
  TcpStore workers(master.master_addr, {.port = master.master_port, .timeout = kPatience});
  workers.Set("worker", "0");
  EXPECT_EQ(workers.Get("worker"), "0");
}

TEST_F(CoordinatedTest, RanksFollowThePolicy) {
  std::vector<CoordinatedPtr> nodes;
  for (const char* addr : {"node10", "node2", "node1"}) {
    CoordinatedRendezvousOptions options = Options(3, 3);
    options.local_addr = addr;
    nodes.push_back(Node(options));
  }
  const auto infos = NextOfAll(nodes);
  EXPECT_EQ(infos[0].rank, 2);
  EXPECT_EQ(infos[1].rank, 1);
  EXPECT_EQ(infos[2].bootstrap_store_info.master_addr, "node1");
}

TEST_F(CoordinatedTest, LabelsComeFirstWhereTheyAreToDecide) {
  std::vector<CoordinatedPtr> nodes;
  for (const char* label : {"rack2", "rack1", "rack2", "rack1"}) {
    CoordinatedRendezvousOptions options = Options(4, 4);
    options.rank_policy = "label";
    options.label = label;
    nodes.push_back(Node(options));
  }
  const auto infos = NextOfAll(nodes);
  EXPECT_LT(infos[1].rank, 2);
  EXPECT_LT(infos[3].rank, 2);
}

TEST_F(CoordinatedTest, SurvivingNodesAreNotifiedOfADeathAndFormANewRound) {
  auto nodes = Nodes(3, 2, 3);
  ExpectAgreement(NextOfAll(nodes));
  const std::string dead = nodes[1]->node();
  nodes.erase(nodes.begin() + 1);  // its connection ends without a leave
  for (const auto& node : nodes) {
    const MembershipEvent event = EventOf(*node);
    EXPECT_EQ(event.kind, Kind::kMemberLost);
    EXPECT_EQ(event.who, dead);
    EXPECT_THAT(event.ToString(), AllOf(HasSubstr(dead), HasSubstr("connection ended")));
  }
  const auto infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1);
}

TEST_F(CoordinatedTest, MembersAreNotifiedOfWaitingNodesWithoutAQuery) {
  const auto nodes = Nodes(2, 2, 3);
  NextOfAll(nodes);
  EXPECT_EQ(nodes[0]->NumNodesWaiting(), 0);
  const auto late = Node(2, 3);
  const auto joined = Next(*late);
  const MembershipEvent event = EventOf(*nodes[0]);
  EXPECT_EQ(event.kind, Kind::kNodesWaiting);
  EXPECT_EQ(event.waiting, 1);
  EXPECT_EQ(nodes[0]->NumNodesWaiting(), 1);
  EXPECT_TRUE(Says(*late, "2 nodes are still in round 0"));
  const auto infos = NextOfAll(nodes);
  EXPECT_EQ(joined->Result().world_size, 3);
  EXPECT_EQ(infos[0].round, 1);
  EXPECT_EQ(nodes[0]->NumNodesWaiting(), 0);
  EXPECT_EQ(nodes[0]->AwaitEvent(milliseconds(0)), std::nullopt) << "that was the last round";
}

TEST_F(CoordinatedTest, ASpareIsPromotedWithoutALastCall) {
  CoordinatedRendezvousOptions options = Options(1, 2);
  options.last_call = kPatience;
  std::vector<CoordinatedPtr> nodes;
  for (int i = 0; i < 2; ++i) nodes.push_back(Node(options));
  NextOfAll(nodes);
  const auto spare = Node(options);
  const auto promoted = Next(*spare);
  EXPECT_TRUE(EventuallyTrue([&] { return spare->DescribeWait().phase == Phase::kSpare; }));
  nodes.pop_back();
  EXPECT_EQ(EventOf(*nodes[0]).kind, Kind::kMemberLost);
  const Stopwatch watch;
  EXPECT_EQ(nodes[0]->NextRendezvous().world_size, 2);
  EXPECT_EQ(promoted->Result().round, 1);
  EXPECT_LT(watch.Elapsed(), kPatience);
}

TEST_F(CoordinatedTest, ClosingEndsItForAllAndReportsWhichNodeAndWhy) {
  const auto nodes = Nodes(2, 2, 2);
  NextOfAll(nodes);
  const auto spare = Node(2, 2);
  const auto waits = Next(*spare);
  EXPECT_TRUE(EventuallyTrue([&] { return spare->DescribeWait().phase == Phase::kSpare; }));
  nodes[0]->SetClosed("the disk is full");
  EXPECT_TRUE(nodes[0]->IsClosed());
  const MembershipEvent event = EventOf(*nodes[1]);
  EXPECT_EQ(event.kind, Kind::kClosed);
  EXPECT_THAT(event.who, HasSubstr("the disk is full"));
  EXPECT_THAT(ErrorOf<RendezvousGracefulExitError>([&] { waits->Result(); }),
              HasSubstr("the disk is full"));
  EXPECT_THAT(ErrorOf<RendezvousClosedError>([&] { nodes[1]->NextRendezvous(); }),
              AllOf(HasSubstr("run"), HasSubstr(nodes[0]->node()), HasSubstr("the disk is full")));
}

// For example a file name in another encoding: the server once closed the connection of such a
// message.
TEST_F(CoordinatedTest, AReasonThatIsNotValidTextClosesTheRun) {
  const auto node = Node(1, 1);
  node->NextRendezvous();
  node->SetClosed("cannot read caf\xe9");
  EXPECT_THAT(ErrorOf<RendezvousClosedError>([&] { node->NextRendezvous(); }),
              HasSubstr("cannot read caf"));
}

TEST_F(CoordinatedTest, AJoinThatTimesOutReportsWhichNodesWerePresent) {
  CoordinatedRendezvousOptions options = Options(3, 4);
  options.join_timeout = milliseconds(200);
  const auto node = Node(options);
  EXPECT_THAT(ErrorOf<RendezvousTimeoutError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr("200 ms"), HasSubstr("1 of 4 nodes are here"),
                    HasSubstr(node->node()), HasSubstr("2 more are needed")));
}

TEST_F(CoordinatedTest, ANodeWithOtherSettingsIsRefusedAndBothAreNamed) {
  const auto first = Node(2, 2);
  const auto waits = Next(*first);
  EXPECT_TRUE(Says(*first, "1 of 2"));
  const auto second = Node(2, 3);
  EXPECT_THAT(ErrorOf<RendezvousError>([&] { second->NextRendezvous(); }),
              AllOf(HasSubstr(first->node()), HasSubstr("max_nodes 3 against 2")));
  const auto third = Node(2, 2);
  EXPECT_EQ(third->NextRendezvous().world_size, 2);
  waits->Result();
}

TEST_F(CoordinatedTest, ANodeThatLeavesIsNotReportedLost) {
  const auto nodes = Nodes(2, 1, 2);
  NextOfAll(nodes);
  nodes[0]->Leave();
  nodes[0]->Leave();
  EXPECT_EQ(nodes[0]->DescribeWait().phase, Phase::kIdle);
  EXPECT_EQ(nodes[1]->NextRendezvous().world_size, 1);
}

TEST_F(CoordinatedTest, TheWaitIsDescribedWithNames) {
  const auto node = Node(3, 3);
  EXPECT_EQ(node->DescribeWait().phase, Phase::kIdle);
  const auto waits = Next(*node);
  EXPECT_TRUE(Says(*node, "1 of 3 nodes are here (127.0.0.1_"));
  EXPECT_TRUE(Says(*node, "2 more are needed; gives up in "));
  const auto others = Nodes(2, 3, 3);
  NextOfAll(others);
  waits->Result();
  EXPECT_EQ(node->DescribeWait().phase, Phase::kComplete);
}

TEST_F(CoordinatedTest, TheRegistryMakesIt) {
  const RendezvousParameters parameters(
      "muster", "127.0.0.1:" + std::to_string(port_), "run", 1, 1, "",
      {{"is_host", false}, {"keep_alive_interval", 0.25}, {"label", "rack7"}});
  const RendezvousHandlerPtr handler = GetRendezvousHandler(parameters);
  EXPECT_EQ(handler->GetBackend(), "muster");
  EXPECT_EQ(handler->GetRunId(), "run");
  EXPECT_EQ(handler->NextRendezvous().world_size, 1);
  EXPECT_TRUE(handler->Shutdown());
  EXPECT_TRUE(handler->IsClosed());
}

}  // namespace
}  // namespace muster::test
