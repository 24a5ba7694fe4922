#include "sim/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/process.h"
#include "sim/sockets.h"

namespace muster::sim {
namespace {

using testing::ElementsAre;

class SimNetworkTest : public testing::Test {
 protected:
  SimNetworkTest() {
    network.Listen(server, 7, [this](std::shared_ptr<Socket> made) {
      accepted = std::move(made);
      accepted->on_event = [this] {
        heard += std::exchange(accepted->inbox, {});
        ended = accepted->ended;
      };
    });
  }

  void Connect() {
    network.Connect(client, {"10.0.0.1", 7}, 5s, [this](Result<std::shared_ptr<Socket>> made) {
      if (made) {
        socket = std::move(*made);
      } else {
        failure = made.error();
      }
    });
  }
  void ConnectNow() {
    Connect();
    scheduler.RunUntil(scheduler.now() + 10ms);
    ASSERT_NE(socket, nullptr);
  }

  Scheduler scheduler;
  Trace trace;
  Network network{scheduler, {}, 1, trace};
  HostId here = network.AddHost("10.0.0.1");
  HostId there = network.AddHost("10.1.0.0");
  SimProcess server{scheduler, network, here, 1, {}, 1};
  SimProcess client{scheduler, network, there, 2, {}, 2};
  std::shared_ptr<Socket> accepted;
  std::shared_ptr<Socket> socket;
  std::optional<Error> failure;
  std::string heard;
  bool ended = false;
};

TEST_F(SimNetworkTest, BytesArriveInOrderAndLater) {
  ConnectNow();
  socket->Write("one ");
  socket->Write("two");
  EXPECT_EQ(heard, "");
  scheduler.RunUntil(scheduler.now() + 1ms);
  EXPECT_EQ(heard, "one two");
}

TEST_F(SimNetworkTest, ACutLinkHoldsWhatIsSentUntilItIsHealed) {
  ConnectNow();
  network.Cut(there, here);
  socket->Write("late");
  scheduler.RunUntil(scheduler.now() + 3s);
  EXPECT_EQ(heard, "");
  accepted->Write("the other way is open");
  scheduler.RunUntil(scheduler.now() + 1ms);
  EXPECT_EQ(socket->inbox, "the other way is open");
  network.Heal(there, here);
  scheduler.RunUntil(scheduler.now() + 1ms);
  EXPECT_EQ(heard, "late");
}

TEST_F(SimNetworkTest, ASideThatWaitsInVainForAnAnswerFinallyLosesTheConnection) {
  ConnectNow();
  socket->unanswered_max = 2s;
  network.Cut(here, there);
  socket->Write("do you hear me");
  scheduler.RunUntil(scheduler.now() + 1s);
  EXPECT_FALSE(socket->ended);
  scheduler.RunUntil(scheduler.now() + 2s);
  EXPECT_TRUE(socket->ended);
  EXPECT_EQ(heard, "do you hear me");
}

TEST_F(SimNetworkTest, AProcessThatDiesEndsItsConnectionsAMachineDoesNot) {
  ConnectNow();
  client.Kill(Network::Ending::kNotified);
  scheduler.RunUntil(scheduler.now() + 1ms);
  EXPECT_TRUE(ended);

  SimProcess other{scheduler, network, there, 3, {}, 3};
  network.Connect(other, {"10.0.0.1", 7}, 5s, [](auto) {});
  scheduler.RunUntil(scheduler.now() + 1ms);
  ended = false;
  other.Kill(Network::Ending::kSilent);
  scheduler.RunUntil(scheduler.now() + 1h);
  EXPECT_FALSE(ended);
}

TEST_F(SimNetworkTest, AMachineThatIsBackRefusesWhatWasMeantForItsPast) {
  ConnectNow();
  client.Kill(Network::Ending::kSilent);
  accepted->Write("are you there");
  scheduler.RunUntil(scheduler.now() + 1h);
  EXPECT_FALSE(ended);
  network.PowerOn(there);
  scheduler.RunUntil(scheduler.now() + 1s);
  EXPECT_TRUE(ended);
}

TEST_F(SimNetworkTest, AMachineWithoutPowerCannotBeConnectedTo) {
  server.Kill(Network::Ending::kSilent);
  Connect();
  scheduler.RunUntil(4s);
  EXPECT_FALSE(failure);
  scheduler.RunUntil(6s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Code::kTimeout);
}

TEST_F(SimNetworkTest, AConnectionIsMadeWhenTheLinksAreOpen) {
  network.Clog(there, here, 1s);
  Connect();
  scheduler.RunUntil(900ms);
  EXPECT_EQ(accepted, nullptr);
  network.Clog(here, there, 2s);  // the way back
  scheduler.RunUntil(1900ms);
  EXPECT_NE(accepted, nullptr);
  EXPECT_EQ(socket, nullptr);
  scheduler.RunUntil(2100ms);
  EXPECT_NE(socket, nullptr);
}

TEST_F(SimNetworkTest, AConnectionWhoseLinkIsCutMeanwhileIsTriedAgain) {
  Connect();
  network.Cut(here, there);
  scheduler.RunUntil(500ms);
  EXPECT_EQ(socket, nullptr);
  network.Heal(here, there);
  scheduler.RunUntil(1500ms);
  EXPECT_NE(socket, nullptr);
}

TEST_F(SimNetworkTest, NothingListensThere) {
  network.StopListening(server, 7);
  Connect();
  scheduler.RunUntil(1s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Code::kUnavailable);
}

TEST_F(SimNetworkTest, APausedProcessReceivesEverythingLater) {
  ConnectNow();
  server.Pause();
  socket->Write("hello");
  scheduler.RunUntil(scheduler.now() + 10s);
  EXPECT_EQ(heard, "");
  server.Resume();
  scheduler.RunUntil(scheduler.now());
  EXPECT_EQ(heard, "hello");
}

TEST_F(SimNetworkTest, AReaderThatDoesNotReadFillsItsPeersQueue) {
  ConnectNow();
  accepted->on_event = nullptr;
  socket->Write(std::string(300 * 1024, 'x'));
  EXPECT_EQ(socket->queued(), 300u * 1024 - 256 * 1024);
  scheduler.RunUntil(scheduler.now() + 1ms);
  accepted->Consumed(300 * 1024);
  EXPECT_EQ(socket->queued(), 0u);
  EXPECT_TRUE(socket->drained);
}

TEST(SimProcessTest, ClocksThatRunFastWakeSleepersSooner) {
  Scheduler scheduler;
  Trace trace;
  Network network(scheduler, {}, 1, trace);
  const HostId host = network.AddHost("10.0.0.1");
  SimProcess fast(scheduler, network, host, 1, {.start = 1h, .drift_ppm = 10'000}, 1);
  SimProcess exact(scheduler, network, host, 2, {}, 1);
  std::vector<std::string> woke;
  for (auto* process : {&exact, &fast}) {
    process->Start([&woke, process] {
      const Instant until = process->Now() + 10s;
      process->clock().SleepUntil(until);
      EXPECT_GE(process->Now(), until);
      woke.push_back(process->process_id() == 1 ? "fast" : "exact");
    });
  }
  scheduler.RunUntil(20s);
  EXPECT_THAT(woke, ElementsAre("fast", "exact"));
}

TEST(SimProcessTest, AProcessKilledWhileItWaitsUnwindsUnseen) {
  Scheduler scheduler;
  Trace trace;
  Network network(scheduler, {}, 1, trace);
  SimProcess process(scheduler, network, network.AddHost("10.0.0.1"), 1, {}, 1);
  bool unwound = false;
  process.Start([&] {
    process.clock().SleepUntil(process.Now() + 1h);
    EXPECT_FALSE(process.alive());
    auto stream = process.dialer().Dial({"10.0.0.1", 7}, process.Now() + 5s);
    EXPECT_FALSE(stream);
    unwound = true;
  });
  scheduler.RunUntil(1s);
  EXPECT_FALSE(unwound);
  process.Kill(Network::Ending::kNotified);
  EXPECT_TRUE(unwound);
  EXPECT_EQ(network.messages(), 0u);
}

}  // namespace
}  // namespace muster::sim
