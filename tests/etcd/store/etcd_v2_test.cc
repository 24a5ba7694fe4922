// "etcd-v2", another name for the backend "etcd", on a real etcd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "etcd/store/shared_etcd.h"
#include "muster/etcd_rendezvous.h"
#include "muster/rendezvous_error.h"
#include "muster/rendezvous_registry.h"
#include "rendezvous/agreement.h"
#include "rendezvous/handler_kit.h"
#include "support/background.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

RendezvousParameters Parameters(std::string run_id, int64_t nodes, RendezvousConfig config = {}) {
  config.insert({{"last_call_timeout", "1"}, {"read_timeout", "30"}});
  return {"etcd-v2",
          SharedEtcd().endpoint(0).ToString(),
          std::move(run_id),
          nodes,
          nodes,
          "127.0.0.1",
          std::move(config)};
}

RendezvousHandlerPtr HandlerOf(const RendezvousParameters& parameters) {
  EnableEtcd();
  return GetRendezvousHandler(parameters);
}

}  // namespace

TEST(EtcdV2Test, ItsNodesAndThoseOfEtcdAreInOneRound) {
  MUSTER_REQUIRE(EtcdNeed());
  RendezvousParameters parameters = Parameters(FreshName(), 2);
  std::vector<RendezvousHandlerPtr> nodes;
  nodes.push_back(HandlerOf(parameters));
  parameters.backend = "etcd";
  nodes.push_back(HandlerOf(parameters));
  EXPECT_EQ(nodes[0]->GetBackend(), "etcd-v2");
  EXPECT_EQ(nodes[1]->GetBackend(), "etcd");
  ExpectAgreement(NextOfAll(nodes));
}

TEST(EtcdV2Test, AnEmptyRunIdIsRejected) {
  MUSTER_REQUIRE(EtcdNeed());
  EXPECT_THAT(ErrorOf<std::invalid_argument>([] { HandlerOf(Parameters("", 1)); }),
              HasSubstr("run id"));
}

TEST(EtcdV2Test, Rdzv157AnUnreachableEtcdIsAConnectionError) {
  const uint16_t no_server = QuietPort();
  const std::string endpoint = "127.0.0.1:" + std::to_string(no_server);
  for (const char* protocol : {"http", "HTTPS"}) {
    EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] {
                  HandlerOf({"etcd-v2",
                             endpoint,
                             "run",
                             1,
                             1,
                             "127.0.0.1",
                             {{"join_timeout", "1"}, {"protocol", protocol}}})
                      ->NextRendezvous();
                }),
                AllOf(HasSubstr("reach"), HasSubstr(endpoint)));
  }
}

TEST(EtcdV2Test, Rdzv158AReadBlocksUntilTheKeyIsPublishedUnderAPrefixThatIsNotThere) {
  MUSTER_REQUIRE(EtcdNeed());
  const RendezvousHandlerPtr node =
      HandlerOf(Parameters("run", 1, {{"etcd_prefix", FreshPrefix()}}));
  const std::shared_ptr<Store> store = node->NextRendezvous().store;
  const std::shared_ptr<Store> reading = store->Clone();
  Background<std::string> reader([&] { return reading->Get("late"); });
  ASSERT_TRUE(reader.UntilBlocked());
  EXPECT_FALSE(reader.IsDone());
  store->Set("late", "now");
  EXPECT_EQ(reader.Result(), "now");
}

TEST(EtcdV2Test, ThreeHandlersMeetRoundAfterRound) {
  MUSTER_REQUIRE(EtcdNeed());
  EnableEtcd();
  EnableEtcd();
  std::vector<RendezvousHandlerPtr> nodes;
  const std::string run_id = FreshName();
  for (int i = 0; i < 3; ++i) nodes.push_back(GetRendezvousHandler(Parameters(run_id, 3)));
  EXPECT_EQ(nodes[0]->GetBackend(), "etcd-v2");
  for (int64_t round = 0; round < 3; ++round) {
    const std::vector<RendezvousInfo> infos = NextOfAll(nodes);
    ExpectAgreement(infos);
    EXPECT_EQ(infos[0].round, round);
    infos[0].store->Set("from", "the first");
    EXPECT_EQ(infos[2].store->Get("from"), "the first");
  }
  EXPECT_TRUE(nodes[0]->Shutdown());
  EXPECT_TRUE(EventuallyTrue([&] { return nodes[1]->IsClosed(); }));
  EXPECT_THROW(nodes[2]->NextRendezvous(), RendezvousClosedError);
}

TEST(EtcdV2Test, HandlersMeetAgainAfterEtcdWasKilledAndStarted) {
  MUSTER_REQUIRE(EtcdNeed());
  EtcdCluster etcd;
  const auto make = [&] {
    return HandlerOf({"etcd-v2",
                      etcd.endpoint(0).ToString(),
                      "run",
                      2,
                      2,
                      "127.0.0.1",
                      {{"last_call_timeout", "1"}}});
  };
  std::vector<RendezvousHandlerPtr> nodes;
  nodes.push_back(make());
  nodes.push_back(make());
  ExpectAgreement(NextOfAll(nodes));
  etcd.Kill(0);
  etcd.Start(0);
  ASSERT_TRUE(EventuallyTrue([&] { return etcd.IsHealthy(); }));
  const std::vector<RendezvousInfo> infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1);
}

}  // namespace muster::test
