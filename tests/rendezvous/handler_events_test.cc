// What a handler reports about itself, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/c10d_rendezvous.h"
#include "muster/network.h"
#include "rendezvous/handler_kit.h"
#include "support/background.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

namespace {

const Node kOther{.addr = "127.0.0.0", .pid = 1, .local_id = 0};

class HandlerEventsTest : public ::testing::Test {
 protected:
  /// Heartbeats do not come in between, unless `settings` allow it.
  std::unique_ptr<DynamicRendezvousHandler> Join(RendezvousSettings settings) {
    return meeting_.Join(std::move(settings), "127.0.0.1", events_.Sink());
  }
  static RendezvousSettings Unhurried(int64_t min_nodes, int64_t max_nodes) {
    RendezvousSettings settings = QuickSettings(min_nodes, max_nodes);
    settings.keep_alive_interval = kPatience;
    return settings;
  }
  /// A complete round of kOther alone.
  void OccupiedByAnother() const {
    cell().Edit([](RendezvousState& state) {
      state.complete = true;
      state.participants = {{kOther, 1}};
      state.last_heartbeats = {{kOther, WallTime{1}}};
    });
  }
  Cell& cell() const { return *meeting_.cell; }

  KeptEvents events_;
  Meeting meeting_;
};

/// The sink of the process, for the life of this object.
class ProcessSink {
 public:
  ProcessSink() { SetRendezvousEventSink(events.Sink()); }
  ~ProcessSink() { SetRendezvousEventSink(nullptr); }
  ProcessSink(const ProcessSink&) = delete;
  ProcessSink& operator=(const ProcessSink&) = delete;

  KeptEvents events;
};

}  // namespace

TEST_F(HandlerEventsTest, JoiningIsReportedStepByStep) {
  const auto node = Join(Unhurried(1, 1));
  node->NextRendezvous();
  EXPECT_THAT(events_.Names(),
              ElementsAre("Handler.next_rendezvous", "Executor._add_to_participants",
                          "Executor._keep_alive", "Executor._mark_rendezvous_complete",
                          "Executor.run", "Handler.next_rendezvous"));
  const auto all = events_.All();
  const Node self = NodeNamed(node->node());
  for (const RendezvousEvent& event : all) {
    EXPECT_EQ(event.run_id, "run");
    EXPECT_EQ(event.hostname, "127.0.0.1");
    EXPECT_EQ(event.pid, self.pid);
    EXPECT_EQ(event.local_id, self.local_id);
    EXPECT_EQ(event.error_trace, "");
    EXPECT_THAT(event.message, HasSubstr(node->node()));
  }
  EXPECT_EQ(all[3].node_state, NodeState::kSucceeded);
  EXPECT_EQ(all[4].node_state, NodeState::kRunning);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(all[i].rank, std::nullopt) << i;
  EXPECT_EQ(all[5].rank, 0) << "only the event of having joined has a rank";
}

TEST_F(HandlerEventsTest, GoingOnLeavesFirst) {
  const auto node = Join(Unhurried(1, 1));
  node->NextRendezvous();
  events_.Clear();
  node->NextRendezvous();
  EXPECT_THAT(
      events_.Names(),
      ElementsAre("Handler.next_rendezvous", "Executor._remove_from_participants", "Executor.run",
                  "Executor._add_to_participants", "Executor._keep_alive",
                  "Executor._mark_rendezvous_complete", "Executor.run", "Handler.next_rendezvous"));
}

TEST_F(HandlerEventsTest, TheEndOfTheLastCallIsAnEventOfItsOwn) {
  const auto node = Join(Unhurried(1, 2));
  node->NextRendezvous();
  EXPECT_THAT(events_.Names(), ElementsAre("Handler.next_rendezvous",
                                           "Executor._add_to_participants", "Executor._keep_alive",
                                           "Executor.run", "Executor._mark_rendezvous_complete",
                                           "Executor.run", "Handler.next_rendezvous"));
}

TEST_F(HandlerEventsTest, ClosingIsReportedAsSucceeded) {
  const auto node = Join(Unhurried(1, 1));
  node->SetClosed();
  EXPECT_THAT(events_.Names(),
              ElementsAre("Executor._mark_rendezvous_closed", "Executor.run", "Handler._close"));
  EXPECT_EQ(events_.All().at(0).node_state, NodeState::kSucceeded);
  EXPECT_EQ(events_.All().at(2).node_state, NodeState::kSucceeded);
  events_.Clear();
  EXPECT_TRUE(node->Shutdown());
  EXPECT_THAT(events_.Names(), ElementsAre("Handler._close")) << "nothing left to do";
}

TEST_F(HandlerEventsTest, AHeartbeatIsReportedWhenItIsMadeStoredAndOver) {
  RendezvousSettings settings = QuickSettings(1, 1);
  settings.keep_alive_interval = milliseconds(50);
  const auto node = Join(settings);
  node->NextRendezvous();
  events_.Clear();
  EXPECT_TRUE(EventuallyTrue([&] {
    return events_.Named("Handler._keep_alive").size() >= 2 &&
           !events_.Named("Executor._keep_alive").empty();
  }));
  EXPECT_THAT(events_.Named("Executor.run"), Not(IsEmpty()));
  EXPECT_THAT(events_.Named("Handler._keep_alive"),
              Each(Field(&RendezvousEvent::node_state, NodeState::kRunning)));
}

TEST_F(HandlerEventsTest, ALostWriteIsReportedAsSuch) {
  cell().SetHook([this, lost = std::make_shared<bool>(false)](bool writes) {
    if (!writes || std::exchange(*lost, true)) return;
    cell().Put(RendezvousState());
  });
  const auto node = Join(Unhurried(1, 1));
  node->NextRendezvous();
  const auto writes = events_.Named("Executor.run");
  ASSERT_THAT(writes, SizeIs(2));
  EXPECT_THAT(writes[0].message, HasSubstr("lost a race"));
  EXPECT_THAT(writes[1].message, HasSubstr("stored"));
  EXPECT_THAT(events_.Named("Executor._add_to_participants"), SizeIs(2));
}

TEST_F(HandlerEventsTest, WaitingForTheNextRoundAndGivingUp) {
  OccupiedByAnother();
  RendezvousSettings settings = Unhurried(1, 2);
  settings.join_timeout = milliseconds(50);
  const auto node = Join(settings);
  const std::string text = ErrorOf<RendezvousTimeoutError>([&] { node->NextRendezvous(); });
  EXPECT_THAT(events_.Names(),
              ElementsAre("Handler.next_rendezvous", "Executor._add_to_wait_list",
                          "Executor._keep_alive", "Executor.run", "Executor._remove_from_wait_list",
                          "Executor.run", "Handler.next_rendezvous"));
  EXPECT_THAT(events_.All().at(1).message, HasSubstr("round 1")) << "the round that it waits for";
  ASSERT_THAT(events_.Failures(), SizeIs(1));
  EXPECT_THAT(events_.Failures()[0].message, HasSubstr(text));
}

TEST_F(HandlerEventsTest, BeingASpareUntilTheEnd) {
  OccupiedByAnother();
  const auto node = Join(Unhurried(1, 1));
  Background<RendezvousInfo> spare([&] { return node->NextRendezvous(); });
  EXPECT_TRUE(EventuallyTrue([&] { return !cell().State().redundancy_list.empty(); }));
  cell().Edit([](RendezvousState& state) { state.closed = true; });
  EXPECT_THROW(spare.Result(), RendezvousGracefulExitError);
  EXPECT_THAT(events_.Names(),
              ElementsAre("Handler.next_rendezvous", "Executor._add_to_redundancy_list",
                          "Executor._keep_alive", "Executor.run", "Handler.next_rendezvous"));
  EXPECT_THAT(events_.All().at(1).message, HasSubstr("round 1"));
}

TEST_F(HandlerEventsTest, AMemberThatComesBackReportsThatItWasDeclaredLost) {
  const auto node = Join(QuickSettings(1, 2));
  node->NextRendezvous();
  OccupiedByAnother();
  EXPECT_TRUE(
      EventuallyTrue([&] { return !events_.Named("Executor._restore_to_participants").empty(); }));
}

TEST_F(HandlerEventsTest, Rdzv118EveryFailureIsReportedAndPropagated) {
  const auto node = Join(Unhurried(1, 1));
  const auto expect_failure = [&](const std::string& name, const std::string& text) {
    ASSERT_THAT(events_.Failures(), SizeIs(1)) << name;
    const RendezvousEvent event = events_.Failures()[0];
    EXPECT_EQ(event.name, "dynamic_rendezvous:DynamicRendezvousHandler." + name);
    EXPECT_THAT(event.message, HasSubstr(text));
    EXPECT_THAT(event.error_trace, HasSubstr(text));
    EXPECT_EQ(event.rank, std::nullopt);
    events_.Clear();
  };
  cell().SetHook([](bool) { throw RendezvousConnectionError("out of reach"); });
  EXPECT_THROW(node->IsClosed(), RendezvousConnectionError);
  expect_failure("is_closed", "out of reach");
  EXPECT_THROW(node->SetClosed(), RendezvousConnectionError);
  expect_failure("set_closed", "out of reach");
  EXPECT_THROW(node->NumNodesWaiting(), RendezvousConnectionError);
  expect_failure("num_nodes_waiting", "out of reach");
  EXPECT_THROW(node->NextRendezvous(), RendezvousConnectionError);
  expect_failure("next_rendezvous", "out of reach");
  cell().SetHook([](bool) { throw 42; });
  EXPECT_THROW(node->IsClosed(), int);
  expect_failure("is_closed", "no std::exception");
  EXPECT_THROW(node->NextRendezvous(), int);
  expect_failure("next_rendezvous", "no std::exception");
}

TEST_F(HandlerEventsTest, Rdzv118AFailedShutdownIsReported) {
  const auto node = Join(Unhurried(1, 1));
  cell().SetHook([](bool) { throw RendezvousConnectionError("out of reach"); });
  EXPECT_FALSE(node->Shutdown());
  ASSERT_THAT(events_.Named("Handler.shutdown"), SizeIs(1));
  EXPECT_EQ(events_.Named("Handler.shutdown")[0].node_state, NodeState::kFailed);
}

TEST(CreationEventsTest, Rdzv118AHandlerThatCannotBeMadeIsReported) {
  const ProcessSink process;
  const RendezvousParameters parameters("cell", "", "run", 1, 1, "127.0.0.1",
                                        {{"join_timeout", "soon"}});
  EXPECT_THROW(
      CreateDynamicHandler(HashStore::Create(),
                           std::make_unique<CellBackend>(std::make_shared<Cell>()), parameters),
      std::invalid_argument);
  ASSERT_THAT(process.events.Failures(), SizeIs(1));
  const RendezvousEvent event = process.events.Failures()[0];
  EXPECT_EQ(event.name, "dynamic_rendezvous:create_handler");
  EXPECT_EQ(event.run_id, "run");
  EXPECT_EQ(event.hostname, FullyQualifiedName());
  EXPECT_EQ(event.local_id, std::nullopt);
  EXPECT_THAT(event.message, HasSubstr("join_timeout"));
}

TEST(CreationEventsTest, ABackendThatCannotBeMadeIsReported) {
  const ProcessSink process;
  EXPECT_THROW(CreateC10dBackend(RendezvousParameters("c10d", "localhost:0", "run", 1, 1, "",
                                                      {{"store_type", "pigeon"}})),
               std::invalid_argument);
  ASSERT_THAT(process.events.Failures(), SizeIs(1));
  EXPECT_EQ(process.events.Failures()[0].name, "c10d_rendezvous_backend:create_backend");
}

TEST(CreationEventsTest, ANodeThatServesTheStoreReportsIt) {
  const ProcessSink process;
  const auto made = CreateC10dBackend(RendezvousParameters("c10d", "localhost:0", "run", 1, 1, ""));
  ASSERT_THAT(process.events.All(), SizeIs(1));
  EXPECT_EQ(process.events.All()[0].name, "c10d_rendezvous_backend:_create_tcp_store");
  EXPECT_EQ(process.events.All()[0].node_state, NodeState::kInit);
  EXPECT_EQ(process.events.All()[0].local_id, std::nullopt);
}

TEST_F(HandlerEventsTest, ASinkThatThrowsDisturbsNoCall) {
  const auto node = meeting_.Join(QuickSettings(1, 1), "127.0.0.1",
                                  [](const RendezvousEvent&) { throw std::runtime_error("full"); });
  EXPECT_EQ(node->NextRendezvous().world_size, 1);
  const Node self = NodeNamed(node->node());
  const WallTime joined = cell().State().last_heartbeats.at(self);
  EXPECT_TRUE(EventuallyTrue([&] { return cell().State().last_heartbeats.at(self) != joined; }));
  EXPECT_TRUE(node->Shutdown());
}

}  // namespace muster::test
