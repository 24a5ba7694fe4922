// The etcd-v2 backend on a real etcd: the contract of all backends, its key, its store, its
// handlers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <any>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/base64.h"
#include "etcd/calls.h"
#include "etcd/etcd_access.h"
#include "etcd/grpc/grpc_etcd.h"
#include "etcd/store/shared_etcd.h"
#include "muster/etcd_store.h"
#include "muster/etcd_v2_rendezvous.h"
#include "muster/rendezvous_error.h"
#include "muster/rendezvous_registry.h"
#include "os/ports/system.h"
#include "rendezvous/agreement.h"
#include "rendezvous/backend_contract.h"
#include "rendezvous/handler_kit.h"
#include "support/background.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

std::shared_ptr<EtcdCalls> Calls() {
  const EtcdAccess access = SharedEtcd().access();
  return EtcdCalls::Open([access](Loop& loop) { return ConnectEtcd(access, loop); }, ThisProcess())
      .value();
}

class EtcdPlace final : public BackendPlace {
 public:
  std::unique_ptr<RendezvousBackend> Open() override {
    return std::make_unique<EtcdV2RendezvousBackend>(Calls(), prefix_, "run", kPatience);
  }
  void Put(const std::string& value) override {
    SharedEtcd().Control({"put", prefix_ + "/rendezvous/run", "--", value});
  }

 private:
  const std::string prefix_ = FreshPrefix();
};

std::string Text(const std::any& token) { return std::to_string(std::any_cast<int64_t>(token)); }

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

/// What etcdctl says of a key: "Lease" and the like.
int64_t Field(const std::string& key, const std::string& name) {
  const std::string fields = SharedEtcd().Control({"get", key, "--write-out=fields"});
  const size_t at = fields.find('"' + name + "\" : ");
  return at == fields.npos ? -1 : std::stoll(fields.substr(at + name.size() + 5));
}

/// The lease that a key goes with, as etcdctl writes it.
std::string LeaseOf(const std::string& key) {
  std::ostringstream hex;
  hex << std::hex << Field(key, "Lease");
  return hex.str();
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(EtcdV2, BackendContract,
                         ::testing::Values(BackendKind{
                             .name = "EtcdV2",
                             .make = [] { return std::make_unique<EtcdPlace>(); },
                             .no_tokens = {std::any(), std::any(int64_t{0})},
                             .text = &Text,
                             .need = EtcdNeed()}),
                         BackendName);

TEST(EtcdV2Test, Rdzv155TheStateIsBase64UnderTheRunsKeyAndGoesWithALease) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::string run_id = FreshName();
  const auto made = CreateEtcdV2Backend(Parameters(run_id, 1));
  const std::string bytes("\x80\x04\0\xff?", 5);
  const auto written = made.backend->SetState(bytes);
  ASSERT_TRUE(written && written->was_set);
  const std::string key = "/torch/elastic/rendezvous/" + run_id;
  EXPECT_EQ(SharedEtcd().Control({"get", key, "--print-value-only"}), Base64Encode(bytes) + "\n");
  EXPECT_EQ(Field(key, "ModRevision"), std::any_cast<int64_t>(written->token));
  // A state that nobody renews is gone after two hours; until then it is there.
  const std::string left = SharedEtcd().Control({"lease", "timetolive", LeaseOf(key)});
  const size_t at = left.find("remaining(");
  ASSERT_NE(at, left.npos) << left;
  const int time_left = std::stoi(left.substr(at + 10));
  EXPECT_LE(time_left, 7200);
  EXPECT_GE(time_left, 3600);
  EXPECT_EQ(made.backend->Name(), "etcd-v2");
}

TEST(EtcdV2Test, Rdzv155TheStoreOfAllRunsIsBesideTheStates) {
  MUSTER_REQUIRE(EtcdNeed());
  const auto made = CreateEtcdV2Backend(Parameters("store", 1));
  EXPECT_EQ(made.store->Timeout(), seconds(30));
  made.store->Set("some key/1", "value");
  EXPECT_EQ(SharedEtcd().Control({"get", "/torch/elastic/store/keys/some%20key/1"}),
            "/torch/elastic/store/keys/some%20key/1\nvalue\n");
  EXPECT_EQ(CreateEtcdV2Backend(Parameters("another", 1)).store->Get("some key/1"), "value");
  const auto elsewhere = CreateEtcdV2Backend(Parameters("store", 1, {{"etcd_prefix", "/mine"}}));
  EXPECT_FALSE(elsewhere.store->Check({"some key/1"}));
}

TEST(EtcdV2Test, ALeaseThatSomebodyRevokedIsReplaced) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::string prefix = FreshPrefix();
  EtcdV2RendezvousBackend backend(Calls(), prefix, "run", kPatience);
  backend.SetState("first");
  SharedEtcd().Control({"lease", "revoke", LeaseOf(prefix + "/rendezvous/run")});
  EXPECT_FALSE(backend.GetState()) << "it went with the lease";
  EXPECT_TRUE(backend.SetState("second")->was_set);
  EXPECT_EQ(backend.GetState()->bytes, "second");
}

TEST(EtcdV2Test, AStateThatIsGoneIsNotWrittenOverWithAnOldToken) {
  MUSTER_REQUIRE(EtcdNeed());
  const std::string prefix = FreshPrefix();
  EtcdV2RendezvousBackend backend(Calls(), prefix, "run", kPatience);
  const std::any token = backend.SetState("state")->token;
  SharedEtcd().Control({"del", prefix + "/rendezvous/run"});
  EXPECT_FALSE(backend.SetState("next", token)) << "nothing is stored after all";
  EXPECT_TRUE(backend.SetState("next")->was_set);
}

TEST(EtcdV2Test, AnEmptyRunIdIsRejected) {
  MUSTER_REQUIRE(EtcdNeed());
  EXPECT_THAT(ErrorOf<std::invalid_argument>([] { CreateEtcdV2Backend(Parameters("", 1)); }),
              HasSubstr("run id"));
}

TEST(EtcdV2Test, Rdzv157AnUnreachableEtcdIsAConnectionError) {
  const uint16_t nobody = QuietPort();
  const std::string endpoint = "127.0.0.1:" + std::to_string(nobody);
  for (const char* protocol : {"http", "HTTPS"}) {
    EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] {
                  CreateEtcdV2Backend({"etcd-v2",
                                       endpoint,
                                       "run",
                                       1,
                                       1,
                                       "127.0.0.1",
                                       {{"read_timeout", "1"}, {"protocol", protocol}}});
                }),
                AllOf(HasSubstr("reached"), HasSubstr(endpoint)));
  }
}

TEST(EtcdV2Test, Rdzv158AReadBlocksUntilTheKeyIsPublishedUnderAPrefixThatIsNotThere) {
  MUSTER_REQUIRE(EtcdNeed());
  const RendezvousParameters fresh = Parameters("run", 1, {{"etcd_prefix", FreshPrefix()}});
  const auto reading = CreateEtcdV2Backend(fresh);
  Background<std::string> reader([&] { return reading.store->Get("late"); });
  ASSERT_TRUE(reader.UntilBlocked());
  EXPECT_FALSE(reader.IsDone());
  CreateEtcdV2Backend(fresh).store->Set("late", "now");
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
  const auto join = [&] {
    return CreateEtcdV2Handler({"etcd-v2",
                                etcd.endpoint(0).ToString(),
                                "run",
                                2,
                                2,
                                "127.0.0.1",
                                {{"last_call_timeout", "1"}}});
  };
  std::vector<RendezvousHandlerPtr> nodes;
  nodes.push_back(join());
  nodes.push_back(join());
  ExpectAgreement(NextOfAll(nodes));
  etcd.Kill(0);
  etcd.Start(0);
  ASSERT_TRUE(EventuallyTrue([&] { return etcd.IsHealthy(); }));
  const std::vector<RendezvousInfo> infos = NextOfAll(nodes);
  ExpectAgreement(infos);
  EXPECT_EQ(infos[0].round, 1);
}

}  // namespace muster::test
