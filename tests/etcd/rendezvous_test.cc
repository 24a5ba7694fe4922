// The backend "etcd" on a real etcd: handlers of one process meet, lose nodes and their leader, and
// report errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "etcd/cluster.h"
#include "etcd/grpc/grpc_etcd.h"
#include "etcd/on_connection.h"
#include "etcd/test_client.h"
#include "muster/rendezvous_error.h"
#include "os/ports/system.h"
#include "rendezvous/agreement.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/interruption_request.h"

namespace muster::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using HandlerPtr = RendezvousHandlerPtr;
using EventKind = MembershipEvent::Kind;

class EtcdRendezvousTest : public EtcdTest {
 protected:
  void SetUp() override {
    EtcdTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) cluster = std::make_unique<EtcdCluster>();
  }

  EtcdRendezvousOptions Options(int64_t min_nodes, int64_t max_nodes) const {
    EtcdRendezvousOptions options{.etcd = {},
                                  .run_id = run_id,
                                  .local_addr = "127.0.0.1",
                                  .min_nodes = min_nodes,
                                  .max_nodes = max_nodes,
                                  .last_call = milliseconds(300),
                                  .keep_alive_max_attempt = keep_alive_max_attempt,
                                  .join_timeout = kPatience};
    options.etcd.endpoints = cluster->endpoints();
    return options;
  }
  std::vector<HandlerPtr> Nodes(int count, int64_t min_nodes, int64_t max_nodes) const {
    std::vector<HandlerPtr> nodes;
    for (int i = 0; i < count; ++i) {
      nodes.push_back(CreateEtcdHandler(Options(min_nodes, max_nodes)));
    }
    return nodes;
  }
  /// The node in the leader key.
  size_t LeaderOf(const std::vector<HandlerPtr>& nodes) const {
    const std::string value = cluster->Control({"get", "/muster/run/leader"});
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i] && value.find(Concat('"', nodes[i]->node(), '"')) != value.npos) return i;
    }
    ADD_FAILURE() << "no node leads: " << value;
    return 0;
  }
  static MembershipEvent EventOf(RendezvousHandler& node) {
    return node.AwaitEvent(kPatience).value();
  }

  std::string run_id = "run";
  int64_t keep_alive_max_attempt = 3;
  std::unique_ptr<EtcdCluster> cluster;
};

TEST_F(EtcdRendezvousTest, ANodeThatWasInterruptedIsOutAndCanComeAgain) {
  auto nodes = Nodes(1, 2, 2);
  InterruptionRequest request;
  for (int i = 0; i < 2; ++i) {
    request.Withdraw();
    Background<void> waiter(request.Within([&] { nodes[0]->NextRendezvous(); }));
    EXPECT_TRUE(EventuallyTrue([&] { return nodes[0]->DescribeWait().here == 1; }));
    request.Make();
    EXPECT_THAT(ErrorOf<InterruptedError>([&] { waiter.Result(); }),
                AllOf(HasSubstr("'run'"), HasSubstr("interrupted after ")));
  }
  for (auto& each : Nodes(1, 2, 2)) nodes.push_back(std::move(each));
  const auto joining = Next(*nodes[1]);
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[1]->DescribeWait().here == 1; }));
  EXPECT_FALSE(joining->IsDone());
  const auto again = Next(*nodes[0]);
  ExpectAgreement({joining->Result(), again->Result()});
}

TEST_F(EtcdRendezvousTest, NodesMeetAndShareAStore) {
  const auto nodes = Nodes(3, 3, 3);
  const auto infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].bootstrap_store_info.master_addr, "127.0.0.1");
  infos[0].store->Set("key", "value");
  EXPECT_EQ(infos[2].store->Get("key"), "value");
  EXPECT_EQ(nodes[0]->GetBackend(), "etcd");
  EXPECT_THAT(cluster->Control({"get", "--prefix", "/muster/run/members/"}),
              AllOf(HasSubstr(nodes[0]->node()), HasSubstr(nodes[2]->node())));
}

TEST_F(EtcdRendezvousTest, ANodeAndItsStoresShareOneClient) {
  std::atomic<int> clients = 0;
  auto node = CreateEtcdHandler(
      Options(1, 1),
      [&clients, access = cluster->access()](Loop& loop) {
        ++clients;
        return ConnectorTo(access)(loop);
      },
      ThisProcess());
  std::vector<std::shared_ptr<Store>> stores;
  for (int64_t round = 0; round < 2; ++round) {
    stores.push_back(node->NextRendezvous().store);
    stores.back()->Set("key", "value");
  }
  EXPECT_EQ(clients, 1);
  node.reset();
  EXPECT_EQ(stores[1]->Get("key"), "value") << "a store outlives its handler";
}

TEST_F(EtcdRendezvousTest, SurvivorsDoNotWaitForTheLastCall) {
  std::vector<HandlerPtr> nodes;
  for (int i = 0; i < 3; ++i) {
    EtcdRendezvousOptions options = Options(2, 3);
    options.last_call = 2 * kPatience;
    nodes.push_back(CreateEtcdHandler(options));
  }
  NextOfAll(nodes);
  nodes.pop_back();
  const auto infos = NextOfAll(nodes);  // within kPatience
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].world_size, 2);
  EXPECT_EQ(infos[0].round, 1);
}

TEST_F(EtcdRendezvousTest, ALateNodeIsWaitedFor) {
  auto nodes = Nodes(2, 2, 3);
  NextOfAll(nodes);
  const HandlerPtr late = CreateEtcdHandler(Options(2, 3));
  const auto next = Next(*late);
  for (const HandlerPtr& node : nodes) {
    EXPECT_EQ(EventOf(*node).kind, EventKind::kNodesWaiting);
    EXPECT_EQ(node->NumNodesWaiting(), 1);
  }
  const auto infos = NextOfAll(nodes);
  EXPECT_EQ(infos[0].world_size, 3);
  EXPECT_EQ(next->Result().round, 1);
}

TEST_F(EtcdRendezvousTest, ALostNodeIsNoticedAndTheLeaderReplaced) {
  auto nodes = Nodes(3, 2, 3);
  NextOfAll(nodes);
  nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(LeaderOf(nodes)));
  for (const HandlerPtr& node : nodes) EXPECT_EQ(EventOf(*node).kind, EventKind::kMemberLost);
  const auto infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1);
}

TEST_F(EtcdRendezvousTest, ClosingIsReportedAndEndsWithItsNodes) {
  {
    const auto nodes = Nodes(2, 2, 2);
    NextOfAll(nodes);
    nodes[0]->SetClosed("enough");
    EXPECT_EQ(EventOf(*nodes[1]).kind, EventKind::kClosed);
    EXPECT_TRUE(nodes[1]->IsClosed());
    const HandlerPtr late = CreateEtcdHandler(Options(2, 2));
    EXPECT_THAT(ErrorOf<RendezvousClosedError>([&] { late->NextRendezvous(); }),
                HasSubstr("enough"));
  }
  // Another run of the same name, with other settings.
  const auto nodes = Nodes(3, 3, 3);
  const auto infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1);
}

TEST_F(EtcdRendezvousTest, ASpareTakesThePlaceOfANodeThatLeaves) {
  auto nodes = Nodes(2, 2, 2);
  NextOfAll(nodes);
  const HandlerPtr spare = CreateEtcdHandler(Options(2, 2));
  const auto next = Next(*spare);
  EXPECT_TRUE(EventuallyTrue(
      [&] { return spare->DescribeWait().ToString().find("a spare") != std::string::npos; }));
  nodes.pop_back();
  EXPECT_EQ(EventOf(*nodes[0]).kind, EventKind::kMemberLost);
  const auto infos = NextOfAll(nodes);
  EXPECT_EQ(infos[0].world_size, 2);
  EXPECT_EQ(next->Result().world_size, 2);
}

TEST_F(EtcdRendezvousTest, AWaitingNodeReportsWhichNodesAreMissing) {
  const HandlerPtr node = CreateEtcdHandler(Options(2, 2));
  const auto next = Next(*node);
  EXPECT_TRUE(EventuallyTrue([&] {
    return node->DescribeWait().ToString().find(
               Concat("1 of 2 nodes are here (", node->node(), ")")) != std::string::npos;
  })) << node->DescribeWait().ToString();
  node->SetClosed("");
  EXPECT_THROW(next->Result(), RendezvousClosedError);
}

TEST_F(EtcdRendezvousTest, EtcdIsRestartedWhileNodesWaitAndWhileTheyWork) {
  keep_alive_max_attempt = 10;  // a busy machine takes seconds to start etcd
  auto nodes = Nodes(3, 3, 3);
  const auto first = Next(*nodes[0]);
  EXPECT_TRUE(EventuallyTrue(
      [&] { return nodes[0]->DescribeWait().ToString().find("1 of 3") != std::string::npos; }));
  cluster->Kill(0);
  cluster->Start(0);
  const auto second = Next(*nodes[1]);
  const auto third = Next(*nodes[2]);
  ExpectAgreement({first->Result(), second->Result(), third->Result()});
  cluster->Kill(0);
  cluster->Start(0);
  nodes[0]->SetClosed("after all");
  for (const HandlerPtr& node : nodes)
    EXPECT_TRUE(EventuallyTrue([&] { return node->IsClosed(); }));
  for (const HandlerPtr& node : nodes) {
    while (const auto event = node->AwaitEvent(milliseconds(0)))
      EXPECT_EQ(event->kind, EventKind::kClosed) << event->why;
  }
}

TEST_F(EtcdRendezvousTest, NoServerAnswers) {
  EtcdRendezvousOptions options = Options(1, 1);
  cluster.reset();
  options.join_timeout = milliseconds(500);
  const HandlerPtr node = CreateEtcdHandler(options);
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr(node->node()), HasSubstr(options.etcd.ToString())));
}

TEST_F(EtcdRendezvousTest, HalfOfThemAreDead) {
  EtcdRendezvousOptions options = Options(1, 1);
  options.etcd.endpoints.insert(options.etcd.endpoints.begin(), {"127.0.0.1", QuietPort()});
  EXPECT_EQ(CreateEtcdHandler(options)->NextRendezvous().world_size, 1);
}

TEST_F(EtcdRendezvousTest, WhatOthersHaveWrittenThereIsNamed) {
  cluster->Control({"put", "/muster/run/run", "not ours"});
  const HandlerPtr node = CreateEtcdHandler(Options(1, 1));
  EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { node->NextRendezvous(); }),
              HasSubstr("/muster/run/run"));
}

}  // namespace
}  // namespace muster::test
