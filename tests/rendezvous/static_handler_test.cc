// The static rendezvous: its parameters, and a node alone in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "muster/prefix_store.h"
#include "muster/static_rendezvous.h"
#include "muster/tcp_store.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

RendezvousParameters Parameters(std::string endpoint, RendezvousConfig config,
                                int64_t max_nodes = 1) {
  return RendezvousParameters("static", std::move(endpoint), "run-1", 1, max_nodes, "",
                              std::move(config));
}

std::string ErrorFor(const RendezvousParameters& parameters) {
  return ErrorOf<std::invalid_argument>([&] { CreateStaticHandler(parameters); });
}

const ConfigValue kZero = int64_t{0};

}  // namespace

TEST(StaticHandlerTest, Rdzv171_ARankIsRequired) {
  EXPECT_THAT(ErrorFor(Parameters("localhost:1", {})),
              AllOf(HasSubstr("'rank' is missing"), HasSubstr("--node-rank")));
  EXPECT_THAT(ErrorFor(Parameters("localhost:1", {{"rank", std::monostate()}})),
              HasSubstr("'rank' is missing"));
  EXPECT_THAT(ErrorFor(Parameters("", {})), HasSubstr("'rank' is missing"));  // first
}

TEST(StaticHandlerTest, Rdzv171_AnEndpointIsRequired) {
  for (const char* endpoint : {"", "  ", "\n"}) {
    EXPECT_THAT(ErrorFor(Parameters(endpoint, {{"rank", kZero}})),
                AllOf(HasSubstr("endpoint is empty"), HasSubstr("--master-addr")));
  }
}

TEST(StaticHandlerTest, Rdzv171_APortIsRequired) {
  for (const char* endpoint : {"localhost", "[::1]", "node-7.example"}) {
    EXPECT_THAT(ErrorFor(Parameters(endpoint, {{"rank", kZero}})),
                AllOf(HasSubstr("no port"), HasSubstr("'" + std::string(endpoint) + "'")));
  }
}

TEST(StaticHandlerTest, ARankIsAnIntegerAmongTheNodes) {
  for (const ConfigValue& rank :
       {ConfigValue(int64_t{4}), ConfigValue(int64_t{-1}), ConfigValue(std::string("4"))}) {
    EXPECT_THAT(ErrorFor(Parameters("localhost:1", {{"rank", rank}}, 4)),
                HasSubstr("allowed: 0 to 3"));
  }
  for (const ConfigValue& rank :
       {ConfigValue(1.5), ConfigValue(true), ConfigValue(std::string("first"))}) {
    EXPECT_THAT(ErrorFor(Parameters("localhost:1", {{"rank", rank}}, 4)), HasSubstr("integer"));
  }
}

TEST(StaticHandlerTest, APortOfTheKernelsChoiceIsForANodeAlone) {
  EXPECT_THAT(ErrorFor(Parameters("localhost:0", {{"rank", kZero}}, 2)), HasSubstr("port 0"));
}

TEST(StaticHandlerTest, ATimeoutIsAnInteger) {
  EXPECT_THAT(
      ErrorFor(Parameters("localhost:1", {{"rank", kZero}, {"timeout", std::string("soon")}})),
      HasSubstr("'timeout'"));
}

TEST(StaticHandlerTest, Rdzv172_ANodeAloneMeetsItselfTwiceInOneStore) {
  // The rank as text, as it comes from a configuration string.
  const auto handler = CreateStaticHandler(
      Parameters("127.0.0.1:0", {{"rank", std::string("0")}, {"timeout", std::string("30")}}));
  const RendezvousInfo first = handler->NextRendezvous();
  const RendezvousInfo second = handler->NextRendezvous();
  for (const RendezvousInfo& info : {first, second}) {
    EXPECT_EQ(info.rank, 0);
    EXPECT_EQ(info.world_size, 1);
    EXPECT_EQ(info.bootstrap_store_info.master_addr, "127.0.0.1");
  }
  const auto inner = [](const RendezvousInfo& info) {
    return std::dynamic_pointer_cast<PrefixStore>(info.store)->underlying();
  };
  EXPECT_EQ(inner(first), inner(second));
  first.store->Set("key", "value");
  EXPECT_EQ(inner(second)->Get("run-1/key"), "value");
  // Workers receive the port that the kernel chose.
  const TcpStore worker("127.0.0.1", {.port = first.bootstrap_store_info.master_port});
  EXPECT_EQ(inner(first)->Timeout(), std::chrono::seconds(30));
}

TEST(StaticHandlerTest, Launch100_ANodeAloneFindsNothingOfTheRoundBefore) {
  const auto handler = CreateStaticHandler(Parameters("127.0.0.1:0", {{"rank", int64_t{0}}}));
  const RendezvousInfo first = handler->NextRendezvous();
  TcpStore worker("127.0.0.1", {.port = first.bootstrap_store_info.master_port});
  worker.Set("key of a worker", "value");
  ASSERT_TRUE(worker.Check({"key of a worker"}));  // The key is there: a Set() has no answer.
  first.store->Set("key of the agent", "value");
  const RendezvousInfo second = handler->NextRendezvous();
  EXPECT_EQ(second.bootstrap_store_info, first.bootstrap_store_info);
  EXPECT_FALSE(worker.Check({"key of a worker"}));
  EXPECT_FALSE(second.store->Check({"key of the agent"}));
}

TEST(StaticHandlerTest, Rdzv172_TheRestIsConstant) {
  const auto handler = CreateStaticHandler(Parameters("127.0.0.1:1", {{"rank", int64_t{3}}}, 4));
  EXPECT_EQ(handler->GetBackend(), "static");
  EXPECT_EQ(handler->GetRunId(), "run-1");
  EXPECT_TRUE(handler->UseAgentStore());
  handler->SetClosed();
  handler->SetClosed("enough");
  EXPECT_FALSE(handler->IsClosed());
  EXPECT_EQ(handler->NumNodesWaiting(), 0);
  EXPECT_TRUE(handler->Shutdown());
  EXPECT_EQ(handler->DescribeWait().phase, WaitReport::Phase::kIdle);
}

}  // namespace muster::test
