// Handlers whose caller ends the wait: the node leaves, and may come again.
#include "muster/c10d_rendezvous.h"
#include "muster/interruption.h"
#include "muster/static_rendezvous.h"
#include "rendezvous/coordinated_kit.h"
#include "support/errors.h"
#include "support/interruption_request.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

struct Backend {
  std::string name;
  std::function<RendezvousHandlerPtr(const std::string& endpoint)> make;
};

RendezvousParameters Two(const std::string& backend, const std::string& endpoint,
                         RendezvousConfig config) {
  config.insert({"last_call_timeout", 1});
  return {backend, endpoint, "run", 2, 2, "127.0.0.1", config};
}

std::string NameOf(const ::testing::TestParamInfo<Backend>& info) { return info.param.name; }

}  // namespace

class InterruptedHandlerTest : public ::testing::TestWithParam<Backend> {
 protected:
  RendezvousHandlerPtr Node() {
    return GetParam().make("127.0.0.1:" + std::to_string(server_.port()));
  }
  std::string Interrupt(const std::function<void()>& call) {
    InterruptionRequest request;
    Background<void> waiter(request.Within(call));
    EXPECT_TRUE(EventuallyTrue([&] { return request.checks() > 3 || waiter.IsDone(); }));
    request.Make();
    return ErrorOf<InterruptedError>([&] { waiter.Result(); });
  }

  StoreServer server_{{.host = "127.0.0.1", .threads = 2}};
};

INSTANTIATE_TEST_SUITE_P(
    Backends, InterruptedHandlerTest,
    ::testing::Values(
        Backend{"C10d",
                [](const std::string& endpoint) {
                  return CreateC10dHandler(Two("c10d", endpoint, {{"is_host", false}}));
                }},
        Backend{"Muster",
                [](const std::string& endpoint) {
                  return CreateCoordinatedHandler(Two("muster", endpoint, {{"is_host", false}}));
                }}),
    NameOf);

TEST_P(InterruptedHandlerTest, ANodeThatWaitedForASecondOneCanComeAgain) {
  std::vector<RendezvousHandlerPtr> nodes;
  nodes.push_back(Node());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Interrupt([&] { nodes[0]->NextRendezvous(); }),
                AllOf(HasSubstr("'run'"), HasSubstr("interrupted after ")));
  }
  nodes.push_back(Node());
  ExpectAgreement(NextOfAll(nodes));
}

TEST_P(InterruptedHandlerTest, ANodeThatWasInterruptedIsNotCountedIn) {
  const auto first = Node();
  Interrupt([&] { first->NextRendezvous(); });
  // If it were still counted, the round would be complete with the second one.
  const auto second = Node();
  const auto joining = Next(*second);
  EXPECT_TRUE(EventuallyTrue([&] { return second->DescribeWait().here == 1; }));
  EXPECT_FALSE(joining->IsDone());
  const auto again = Next(*first);
  ExpectAgreement({joining->Result(), again->Result()});
}

TEST_P(InterruptedHandlerTest, AMemberThatWaitsForAnEventStaysAMember) {
  std::vector<RendezvousHandlerPtr> nodes;
  nodes.push_back(Node());
  nodes.push_back(Node());
  ExpectAgreement(NextOfAll(nodes));
  EXPECT_THAT(Interrupt([&] { nodes[0]->AwaitEvent(kPatience); }), HasSubstr("membership event"));
  EXPECT_EQ(nodes[1]->NumNodesWaiting(), 0);
  EXPECT_EQ(nodes[0]->NumNodesWaiting(), 0);
}

TEST_P(InterruptedHandlerTest, AHandlerIsDestroyedInOrderDespiteARequest) {
  InterruptionRequest request;
  request.Make();
  auto node = Node();
  const ScopedInterruption scope(request.Check());
  EXPECT_THROW(node->NextRendezvous(), InterruptedError);
  node.reset();
}

TEST(InterruptedStaticHandlerTest, RankZeroStopsWaitingAndMeetsTheOthersLater) {
  const auto server = StoreServer::Shared({.host = "127.0.0.1", .threads = 1});
  const auto node = [&](int64_t rank) {
    return CreateStaticHandler(
        RendezvousParameters("static", "127.0.0.1:" + std::to_string(server->port()), "run", 1, 3,
                             "", {{"rank", rank}, {"timeout", "30"}}));
  };
  const auto first = node(0);
  InterruptionRequest request;
  {
    Background<void> waiter(request.Within([&] { first->NextRendezvous(); }));
    request.Make();
    EXPECT_THAT(ErrorOf<InterruptedError>([&] { waiter.Result(); }), HasSubstr("1/3 clients"));
  }
  const auto second = node(1);
  const auto third = node(2);
  const auto again = Next(*first);
  EXPECT_EQ(second->NextRendezvous().rank, 1);
  EXPECT_EQ(third->NextRendezvous().rank, 2);
  EXPECT_EQ(again->Result().rank, 0);
}

}  // namespace muster::test
