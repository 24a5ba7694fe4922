// Bugs that the simulator found, as short stories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "muster/rendezvous_error.h"
#include "rendezvous/session/coordinated_handler.h"
#include "sim/network.h"
#include "sim/process.h"
#include "sim/store_host.h"

namespace muster::sim {
namespace {

class LateAnswerTest : public testing::Test {
 protected:
  // Joins, and joins again whenever a node waits, its place is lost, or its time is up.
  void StartNode(SimProcess& process, std::vector<RendezvousInfo>& joined, int64_t nodes = 2) {
    process.Start([this, &process, &joined, nodes] {
      const auto made = CreateCoordinatedHandler({.host = "10.0.0.1",
                                                  .port = 29400,
                                                  .is_host = false,
                                                  .run_id = "run",
                                                  .min_nodes = nodes,
                                                  .max_nodes = nodes,
                                                  .join_timeout = std::chrono::milliseconds(1'000)},
                                                 process);
      RendezvousHandler& handler = *made;
      while (process.alive()) {
        try {
          joined.push_back(handler.NextRendezvous());
          std::optional<MembershipEvent> event;
          while (process.alive() && !event)
            event = handler.AwaitEvent(std::chrono::milliseconds(100));
          if (event) heard[&process].push_back(*event);
        } catch (const RendezvousError&) {
        }
      }
    });
  }

  void EndAll() {
    a.Kill(Network::Ending::kNotified);
    b.Kill(Network::Ending::kNotified);
    server.Kill(Network::Ending::kNotified);
    store.reset();
  }

  Scheduler scheduler;
  Trace trace;
  Network network{scheduler, {}, 1, trace};
  HostId server_host = network.AddHost("10.0.0.1");
  HostId host_a = network.AddHost("10.1.0.1");
  HostId host_b = network.AddHost("10.1.0.2");
  SimProcess server{scheduler, network, server_host, 1, {}, 1};
  std::unique_ptr<StoreHost> store = std::make_unique<StoreHost>(server, 29400, StoreHostOptions{});
  SimProcess a{scheduler, network, host_a, 2, {}, 2};
  SimProcess b{scheduler, network, host_b, 3, {}, 3};
  std::vector<RendezvousInfo> joined_a;
  std::vector<RendezvousInfo> joined_b;
  std::map<const SimProcess*, std::vector<MembershipEvent>> heard;
};

// Found by seed 10752127: the assignment to a round that was over was used as the answer to the
// next call, and its node stayed in that round alone, permanently.
TEST_F(LateAnswerTest, AnAnswerThatComesTooLateIsNotUsedForTheNextCall) {
  StartNode(a, joined_a);
  scheduler.RunUntil(100ms);
  network.Clog(server_host, host_a, 4s);
  StartNode(b, joined_b);  // the round is complete, and a is not notified
  scheduler.RunUntil(3s);
  ASSERT_EQ(joined_b.size(), 1u);
  EXPECT_TRUE(joined_a.empty());
  scheduler.RunUntil(20s);
  ASSERT_FALSE(joined_a.empty());
  EXPECT_EQ(joined_a.back().round, joined_b.back().round);
  EndAll();
}

// Seeds 29 and 57 find it since the simulator checks that, too: the node continued until it reached
// a server again.
TEST_F(LateAnswerTest, AnEvictedNodeDoesNotContinueAlthoughTheServerIsGone) {
  StartNode(a, joined_a);
  StartNode(b, joined_b);
  scheduler.RunUntil(1s);
  ASSERT_EQ(joined_b.size(), 1u);
  b.Pause();
  scheduler.RunUntil(6s);
  ASSERT_FALSE(heard[&a].empty()) << "b is declared lost";
  server.Kill(Network::Ending::kNotified);
  b.Resume();
  scheduler.RunUntil(7s);
  ASSERT_EQ(heard[&b].size(), 1u);
  EXPECT_EQ(heard[&b][0].kind, MembershipEvent::Kind::kPlaceLost);
  EXPECT_THAT(heard[&b][0].why, testing::HasSubstr("not heard of for"));
  EndAll();
}

// Found by seed 911274: a node that the server refused did not reconnect, and stayed in its round.
TEST_F(LateAnswerTest, ANodeThatIsRefusedDoesNotContinueInItsRound) {
  StartNode(a, joined_a);
  StartNode(b, joined_b);
  scheduler.RunUntil(1s);
  ASSERT_EQ(joined_b.size(), 1u);
  b.Pause();
  server.Kill(Network::Ending::kNotified);
  store.reset();
  SimProcess next_server{scheduler, network, server_host, 4, {}, 4};
  store = std::make_unique<StoreHost>(next_server, 29400, StoreHostOptions{});
  SimProcess stranger{scheduler, network, host_b, 5, {}, 5};
  std::vector<RendezvousInfo> joined_alone;
  StartNode(stranger, joined_alone, /*nodes=*/1);  // the same run, configured differently
  scheduler.RunUntil(4s);
  ASSERT_EQ(joined_alone.size(), 1u);
  ASSERT_FALSE(heard[&a].empty());
  EXPECT_EQ(heard[&a][0].kind, MembershipEvent::Kind::kPlaceLost);
  EXPECT_THAT(heard[&a][0].why, testing::HasSubstr("were configured differently"));
  stranger.Kill(Network::Ending::kNotified);
  next_server.Kill(Network::Ending::kNotified);
  EndAll();
}

}  // namespace
}  // namespace muster::sim
