// The dynamic handler, one node at a time: its promises, and its reaction to a backend that breaks
// its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "muster/prefix_store.h"
#include "rendezvous/document/rendezvous_driver.h"
#include "rendezvous/handler_kit.h"
#include "rendezvous/wire/state_codec.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/fake_cell.h"
#include "support/story.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

const Node kOther{.addr = "127.0.0.0", .pid = 1, .local_id = 0};

/// A complete round of `self` and kOther, with `self` as rank 1.
RendezvousState RoundOfTwo(const Node& self) {
  RendezvousState state;
  state.complete = true;
  state.participants = {{kOther, 0}, {self, 1}};
  for (const Node& node : {kOther, self}) state.last_heartbeats[node] = WallTime{1};
  return state;
}

class HandlerTest : public ::testing::Test {
 protected:
  std::unique_ptr<DynamicRendezvousHandler> Alone(RendezvousSettings settings) {
    return meeting_.Join(std::move(settings), "127.0.0.1", events_.Sink());
  }
  std::unique_ptr<DynamicRendezvousHandler> Alone() { return Alone(QuickSettings(1, 1)); }
  Cell& cell() const { return *meeting_.cell; }

  KeptEvents events_;
  Meeting meeting_;
};

}  // namespace

// --- Making one ---

TEST_F(HandlerTest, Rdzv104RejectsAnEmptyRunId) {
  RendezvousSettings settings = QuickSettings(1, 1);
  settings.run_id = "";
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { Alone(settings); }), HasSubstr("run id"));
}

TEST_F(HandlerTest, Rdzv104RejectsInvalidNumbersOfNodes) {
  for (const int64_t min : {0, -1, -5}) {
    EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { Alone(QuickSettings(min, 3)); }),
                HasSubstr(std::to_string(min)));
  }
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { Alone(QuickSettings(7, 4)); }),
              AllOf(HasSubstr("7"), HasSubstr("4")));
}

TEST_F(HandlerTest, RejectsAnAddressThatNoPeerCouldRead) {
  for (const std::string& addr :
       {std::string("\xff\xfe"), std::string("two\nlines"), std::string(2000, 'a')}) {
    EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { meeting_.Join(QuickSettings(1, 1), addr); }),
                HasSubstr("address"));
  }
}

TEST_F(HandlerTest, RejectsTheLackOfAStoreOrABackend) {
  EXPECT_THROW(CreateDynamicHandler(QuickSettings(1, 1), nullptr,
                                    std::make_unique<CellBackend>(meeting_.cell)),
               std::invalid_argument);
  EXPECT_THROW(CreateDynamicHandler(QuickSettings(1, 1), meeting_.store, nullptr),
               std::invalid_argument);
}

TEST_F(HandlerTest, Rdzv105ReflectsWhatItWasMadeFrom) {
  const RendezvousSettings settings{.run_id = "r", .min_nodes = 2, .max_nodes = 4};
  const auto node = Alone(settings);
  EXPECT_EQ(node->GetBackend(), "cell");
  EXPECT_EQ(node->GetRunId(), "r");
  EXPECT_EQ(node->settings(), settings);
  EXPECT_EQ(cell().gets + cell().sets, 0) << "making one asks the backend nothing";
}

TEST(HandlerDelayTest, Rdzv106TheFirstDelayGrowsWithTheNodesUpToThreeTenthsOfASecond) {
  const auto longest_of = [](int64_t max_nodes) {
    testing::FakeClock clock;
    testing::FakeCell cell;
    const RunSettings rules{.min_nodes = 1, .max_nodes = max_nodes};
    SharedDocument document(cell, rules, clock, 1s);
    RendezvousDriver driver(document, Node{"a", 1, 0}, rules, clock, 7, {});
    Duration longest = 0s;
    for (int draw = 0; draw < 100; ++draw) {
      const Duration delay = driver.FirstDelay();
      EXPECT_GE(delay, 0s) << max_nodes;
      longest = std::max(longest, delay);
    }
    return longest;
  };
  EXPECT_LT(longest_of(1), 1ms);
  EXPECT_LT(longest_of(20), 20ms);
  for (const int64_t many : {int64_t{300}, int64_t{100'000}, int64_t{1} << 44, int64_t{1} << 58,
                             std::numeric_limits<int64_t>::max()}) {
    EXPECT_LT(longest_of(many), 300ms) << many;
    EXPECT_GT(longest_of(many), 150ms) << many;
  }
}

TEST_F(HandlerTest, Rdzv106InRound0ACallIsDelayedSoThatAFleetDoesNotArriveAtOnce) {
  cell().Edit([](RendezvousState& state) {
    state.closed = true;
    state.round = 3;
  });
  constexpr int kNodes = 24;
  std::vector<std::unique_ptr<DynamicRendezvousHandler>> nodes;
  for (int i = 0; i < kNodes; ++i) nodes.push_back(Alone(QuickSettings(1, 1000)));
  const auto quick_calls = [&] {
    std::atomic<int> quick = 0;
    std::vector<std::thread> threads;
    for (auto& node : nodes) {
      threads.emplace_back([&] {
        const Stopwatch own;
        EXPECT_THROW(node->NextRendezvous(), RendezvousClosedError);
        if (own.Elapsed() < milliseconds(20)) ++quick;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return quick.load();
  };
  EXPECT_LT(quick_calls(), kNodes / 2) << "one in fifteen; for all they know it is round 0";
  EXPECT_TRUE(EventuallyTrue([&] { return quick_calls() > kNodes / 2; })) << "they know better now";
}

TEST_F(HandlerTest, AnyMaximumOfNodesWillDo) {
  const auto node = Alone(QuickSettings(1, std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(node->NextRendezvous().world_size, 1);
  EXPECT_EQ(node->NextRendezvous().round, 1);
}

// --- The next round ---

TEST_F(HandlerTest, Rdzv108Rdzv109TheStoreIsTheGivenOneUnderThePrefixOfTheRound) {
  const auto node = Alone();
  for (int round = 0; round < 2; ++round) {
    const RendezvousInfo info = node->NextRendezvous();
    info.store->Set("key", std::to_string(round));
    EXPECT_EQ(meeting_.store->Get("torch.rendezvous.run." + std::to_string(round) + "/key"),
              std::to_string(round));
    const auto* prefixed = dynamic_cast<const PrefixStore*>(info.store.get());
    ASSERT_NE(prefixed, nullptr);
    EXPECT_EQ(prefixed->underlying(), meeting_.store);
  }
}

TEST_F(HandlerTest, Rdzv110AJoinLimitBelowTheTimeOfASyncIsATimeout) {
  RendezvousSettings settings = QuickSettings(2, 2);
  settings.join_timeout = milliseconds(20);
  cell().SetHook([](bool) { Take(milliseconds(30)); });
  const auto node = Alone(settings);
  EXPECT_THAT(ErrorOf<RendezvousTimeoutError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr("'run'"), HasSubstr(node->node())));
  EXPECT_THAT(cell().State().participants, IsEmpty());
}

TEST_F(HandlerTest, ATimeoutReportsWhichNodesWereThereAndHowManyAreMissing) {
  RendezvousSettings settings = QuickSettings(3, 4);
  settings.join_timeout = milliseconds(60);
  const auto node = Alone(settings);
  EXPECT_THAT(ErrorOf<RendezvousTimeoutError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr("1 of 4 nodes are here (" + node->node() + ")"),
                    HasSubstr("2 more are needed")));
  EXPECT_THAT(HeartbeatThreads(), IsEmpty());
  // Nothing is left behind, and the next call starts again.
  EXPECT_THAT(cell().State().last_heartbeats, IsEmpty());
  EXPECT_THROW(node->NextRendezvous(), RendezvousTimeoutError);
}

TEST_F(HandlerTest, Rdzv111ANodeAloneSeesRoundAfterRound) {
  const auto node = Alone();
  for (int64_t round = 0; round < 4; ++round) {
    const RendezvousInfo info = node->NextRendezvous();
    EXPECT_EQ(info.round, round);
    EXPECT_EQ(info.rank, 0);
    EXPECT_EQ(info.world_size, 1);
  }
}

TEST_F(HandlerTest, Rdzv130TheLocalAddressOfRank0IsTheMasterAddress) {
  const auto node = meeting_.Join(QuickSettings(1, 1), "127.0.0.2");
  EXPECT_EQ(node->NextRendezvous().bootstrap_store_info.master_addr, "127.0.0.2");
  EXPECT_TRUE(cell().State().participants.contains(NodeNamed(node->node())));
}

TEST_F(HandlerTest, Rdzv124AMemberThatComesBackAfterTheCloseIsTakenOutFirst) {
  const auto node = Alone();
  node->NextRendezvous();
  node->SetClosed("workers failed");
  EXPECT_TRUE(cell().State().participants.contains(NodeNamed(node->node())));
  EXPECT_THAT(ErrorOf<RendezvousClosedError>([&] { node->NextRendezvous(); }),
              AllOf(HasSubstr("closed by " + node->node()), HasSubstr("workers failed")));
  EXPECT_THAT(cell().State().participants, IsEmpty());
  EXPECT_TRUE(cell().State().closed);
}

TEST_F(HandlerTest, AfterAShutdownOthersLearnWhichNodeDidIt) {
  const auto first = Alone();
  first->NextRendezvous();
  EXPECT_TRUE(first->Shutdown());
  EXPECT_THROW(first->NextRendezvous(), RendezvousClosedError);
  EXPECT_THAT(ErrorOf<RendezvousClosedError>([&] { Alone()->NextRendezvous(); }),
              AllOf(HasSubstr(first->node()), HasSubstr("shut down")));
}

TEST_F(HandlerTest, ACloseWithoutANameIsPutDownToTorchrun) {
  cell().Edit([](RendezvousState& state) { state.closed = true; });
  EXPECT_THAT(ErrorOf<RendezvousClosedError>([&] { Alone()->NextRendezvous(); }),
              HasSubstr("left no name"));
}

// --- Looking and closing ---

TEST_F(HandlerTest, Rdzv112IsClosedIsOneSync) {
  cell().Edit([](RendezvousState& state) { state.closed = true; });
  EXPECT_TRUE(Alone()->IsClosed());
  EXPECT_EQ(cell().gets, 1);
  EXPECT_EQ(cell().sets, 0);
}

TEST_F(HandlerTest, Rdzv112NumNodesWaitingIsOneSync) {
  cell().Edit([](RendezvousState& state) {
    state = RoundOfTwo({"b", 1, 0});
    for (const char* name : {"c", "d"}) {
      state.wait_list.insert({name, 1, 0});
      state.last_heartbeats[{name, 1, 0}] = WallTime{1};
    }
  });
  const auto node = Alone();
  EXPECT_EQ(node->NumNodesWaiting(), 2);
  EXPECT_EQ(cell().gets, 1);
  EXPECT_EQ(node->NumNodesWaiting(), 2);
  EXPECT_FALSE(node->IsClosed());
  EXPECT_LE(cell().gets, 2) << "within a second the copy will do";
  EXPECT_EQ(cell().sets, 0);
}

TEST_F(HandlerTest, Rdzv113SparesDoNotWait) {
  cell().Edit([](RendezvousState& state) {
    state = RoundOfTwo({"b", 1, 0});
    state.redundancy_list.insert({"c", 1, 0});
    state.last_heartbeats[{"c", 1, 0}] = WallTime{1};
  });
  EXPECT_EQ(Alone()->NumNodesWaiting(), 0);
}

TEST_F(HandlerTest, Rdzv114ClosingTwiceIsFineAndTheFirstReasonStays) {
  const auto node = Alone();
  node->SetClosed("first");
  const auto bytes = cell().Bytes();
  node->SetClosed("second");
  EXPECT_EQ(cell().Bytes(), bytes) << "nothing was written again";
  EXPECT_TRUE(node->IsClosed());
  EXPECT_EQ(cell().State().closed_by, node->node() + ": first");
}

TEST_F(HandlerTest, Rdzv115ClosingHonoursItsLimit) {
  RendezvousSettings settings = QuickSettings(1, 1);
  settings.close_timeout = milliseconds(10);
  cell().SetHook([](bool) { Take(milliseconds(20)); });
  const auto node = Alone(settings);
  EXPECT_THROW(node->SetClosed(), RendezvousTimeoutError);
  EXPECT_FALSE(cell().State().closed);
}

TEST_F(HandlerTest, Rdzv116ShutdownClosesAndTwiceIsFine) {
  const auto node = Alone();
  node->NextRendezvous();
  EXPECT_TRUE(node->Shutdown());
  EXPECT_TRUE(cell().State().closed);
  EXPECT_TRUE(node->Shutdown());
  EXPECT_EQ(node->DescribeWait().phase, WaitReport::Phase::kClosed);
}

TEST_F(HandlerTest, Rdzv117ShutdownFailsWithFalseOrWithAForeignError) {
  const auto node = Alone();
  node->NextRendezvous();
  cell().SetHook([](bool) { throw RendezvousConnectionError("gone"); });
  EXPECT_FALSE(node->Shutdown());
  EXPECT_THAT(HeartbeatThreads(), IsEmpty()) << "even so";
  cell().SetHook([](bool) { throw RendezvousStateError("odd"); });
  EXPECT_FALSE(node->Shutdown());
  events_.Clear();
  cell().SetHook([](bool) { throw std::out_of_range("a bug"); });
  EXPECT_THROW(node->Shutdown(), std::out_of_range);
  EXPECT_THAT(events_.Names(), ElementsAre("Handler.shutdown"));
  cell().SetHook([](bool) { throw 42; });
  EXPECT_THROW(node->Shutdown(), int);
  cell().SetHook({});
  EXPECT_TRUE(node->Shutdown());
}

// --- Reports of waits ---

TEST_F(HandlerTest, ANodeThatLeftOrTimedOutWaitsForNothing) {
  const auto node = Alone();
  node->NextRendezvous();
  EXPECT_EQ(node->DescribeWait().phase, WaitReport::Phase::kComplete);
  node->Leave();
  EXPECT_EQ(node->DescribeWait(), WaitReport());
  RendezvousSettings settings = QuickSettings(2, 2);
  settings.join_timeout = milliseconds(10);
  const auto alone = Alone(settings);
  EXPECT_THROW(alone->NextRendezvous(), RendezvousTimeoutError);
  EXPECT_EQ(alone->DescribeWait(), WaitReport());
}

TEST_F(HandlerTest, ANodeThatHasNotReadTheStateReportsThatItWaitsForTheBackend) {
  const auto node = Alone();
  std::string meanwhile;
  cell().SetHook([&](bool) {
    if (meanwhile.empty()) meanwhile = node->DescribeWait().ToString();
  });
  node->NextRendezvous();
  EXPECT_EQ(meanwhile, "waiting for the backend to say how the rendezvous 'run' stands");
  cell().SetHook({});
}

TEST_F(HandlerTest, ATimeoutOfClosingNamesTheClosing) {
  RendezvousSettings settings = QuickSettings(1, 1);
  settings.close_timeout = milliseconds(1);
  const auto node = Alone(settings);
  cell().SetHook([](bool) { Take(milliseconds(5)); });
  EXPECT_THAT(ErrorOf<RendezvousTimeoutError>([&] { node->SetClosed(); }),
              HasSubstr("too late to close"));
  cell().SetHook({});
}

// --- Heartbeats ---

TEST_F(HandlerTest, Rdzv119ATickRenewsAnOldHeartbeat) {
  const auto node = Alone();
  node->NextRendezvous();
  const Node self = NodeNamed(node->node());
  const WallTime joined = cell().State().last_heartbeats.at(self);
  EXPECT_TRUE(EventuallyTrue([&] { return cell().State().last_heartbeats.at(self) > joined; }));
  EXPECT_EQ(cell().State().round, 0);
  EXPECT_THAT(events_.Failures(), IsEmpty());
}

TEST_F(HandlerTest, Rdzv120ATickSwallowsWhateverTheBackendThrows) {
  const auto node = Alone();
  node->NextRendezvous();
  const Node self = NodeNamed(node->node());
  const std::vector<Cell::Hook> failures = {[](bool) { throw RendezvousConnectionError("gone"); },
                                            [](bool) { throw RendezvousStateError("odd"); },
                                            [](bool) { throw std::runtime_error("a bug"); },
                                            [](bool) { throw 42; }};
  for (size_t i = 0; i < failures.size(); ++i) {
    cell().SetHook(failures[i]);
    events_.Clear();
    EXPECT_TRUE(EventuallyTrue([&] { return events_.Failures().size() >= 3; })) << i;
    const WallTime before = cell().State().last_heartbeats.at(self);
    events_.Clear();
    EXPECT_TRUE(EventuallyTrue([&] { return !events_.Failures().empty(); })) << i;
    EXPECT_EQ(cell().State().last_heartbeats.at(self), before) << i;
    EXPECT_EQ(events_.Failures().at(0).name,
              "dynamic_rendezvous:DynamicRendezvousHandler._keep_alive");
    cell().SetHook({});
    EXPECT_TRUE(EventuallyTrue([&] { return cell().State().last_heartbeats.at(self) > before; }))
        << "it beats again, " << i;
  }
}

TEST_F(HandlerTest, Rdzv121ATickHonoursItsLimit) {
  RendezvousSettings settings = QuickSettings(1, 1);
  settings.heartbeat_timeout = milliseconds(1);
  const auto node = Alone(settings);
  node->NextRendezvous();
  cell().SetHook([](bool) { Take(milliseconds(10)); });
  EXPECT_TRUE(EventuallyTrue([&] { return !events_.Failures().empty(); }));
  EXPECT_THAT(events_.Failures().at(0).message, HasSubstr("time is up"));
  const Node self = NodeNamed(node->node());
  const WallTime before = cell().State().last_heartbeats.at(self);
  events_.Clear();
  EXPECT_TRUE(EventuallyTrue([&] { return !events_.Failures().empty(); }));
  EXPECT_EQ(cell().State().last_heartbeats.at(self), before);
}

TEST_F(HandlerTest, Rdzv122TheHeartbeatThreadLivesFromJoiningToShutdownOrDestruction) {
  auto node = Alone();
  EXPECT_THAT(HeartbeatThreads(), IsEmpty());
  node->NextRendezvous();
  const std::string name =
      ("RdzvKeepAlive_" + std::to_string(NodeNamed(node->node()).local_id)).substr(0, 15);
  EXPECT_TRUE(EventuallyTrue([&] { return HeartbeatThreads() == std::vector{name}; }));
  node->NextRendezvous();
  EXPECT_TRUE(EventuallyTrue([&] { return HeartbeatThreads() == std::vector{name}; }));
  EXPECT_TRUE(node->Shutdown());
  EXPECT_THAT(HeartbeatThreads(), IsEmpty());

  meeting_ = Meeting();
  node = Alone();
  node->NextRendezvous();
  EXPECT_TRUE(EventuallyTrue([] { return HeartbeatThreads().size() == 1; }));
  node.reset();
  EXPECT_THAT(HeartbeatThreads(), IsEmpty());
}

TEST_F(HandlerTest, Rdzv123NoHeartbeatThreadRunsInNextRendezvous) {
  const auto node = Alone();
  node->NextRendezvous();
  EXPECT_TRUE(EventuallyTrue([] { return HeartbeatThreads().size() == 1; }));
  const int caller = KernelThreadId();
  std::atomic<size_t> seen = 0;
  std::atomic<int> looks = 0;
  cell().SetHook([&](bool) {
    if (KernelThreadId() != caller) return;
    seen += HeartbeatThreads().size();
    ++looks;
  });
  node->NextRendezvous();
  EXPECT_GT(looks, 0);
  EXPECT_EQ(seen, 0u);
  cell().SetHook({});
}

TEST_F(HandlerTest, IsDestroyedWhileAHeartbeatIsUnderWay) {
  auto node = Alone();
  node->NextRendezvous();
  std::atomic<bool> beating = false;
  cell().SetHook([&](bool) {
    beating = true;
    Take(milliseconds(30));
  });
  EXPECT_TRUE(EventuallyTrue([&] { return beating.load(); }));
  node.reset();
  EXPECT_THAT(HeartbeatThreads(), IsEmpty());
}

TEST_F(HandlerTest, AMemberTakenForDeadComesBackByItself) {
  const auto node = Alone(QuickSettings(1, 2));
  node->NextRendezvous();
  const Node self = NodeNamed(node->node());
  cell().Edit([&](RendezvousState& state) {
    ASSERT_TRUE(state.complete);
    state.participants = {{kOther, 1}};
    state.last_heartbeats = {{kOther, WallTime{1}}};
  });
  EXPECT_TRUE(EventuallyTrue([&] { return cell().State().participants.contains(self); }));
  EXPECT_EQ(cell().State().participants.at(self), 0) << "with the rank it had";
  EXPECT_TRUE(cell().State().last_heartbeats.contains(self));
  EXPECT_EQ(node->NumNodesWaiting(), 0);
}

TEST_F(HandlerTest, AMemberLeftBehindIsTheOneToCome) {
  const auto node = Alone(QuickSettings(1, 2));
  node->NextRendezvous();
  cell().Edit([&](RendezvousState& state) {
    state = RendezvousState();
    state.round = 1;
    state.participants = {{kOther, 0}};
    state.last_heartbeats = {{kOther, WallTime{1}}};
  });
  EXPECT_TRUE(EventuallyTrue([&] { return node->NumNodesWaiting() == 1; }));
  EXPECT_FALSE(cell().State().participants.contains(NodeNamed(node->node())))
      << "but it does not push itself into a round of others";
}

// --- Backends that break their promises ---

TEST_F(HandlerTest, WhatTheBackendThrowsReachesTheCallerAsItIs) {
  const auto node = Alone();
  cell().SetHook([](bool) { throw std::out_of_range("a bug"); });
  EXPECT_EQ(ErrorOf<std::out_of_range>([&] { node->NextRendezvous(); }), "a bug");
  EXPECT_EQ(ErrorOf<std::out_of_range>([&] { node->IsClosed(); }), "a bug");
  EXPECT_EQ(ErrorOf<std::out_of_range>([&] { node->NumNodesWaiting(); }), "a bug");
  EXPECT_EQ(ErrorOf<std::out_of_range>([&] { node->SetClosed(); }), "a bug");
  cell().SetHook([](bool) { throw 42; });
  EXPECT_THROW(node->NextRendezvous(), int);
  EXPECT_THROW(node->IsClosed(), int);
  cell().SetHook([](bool writes) {
    if (writes) throw RendezvousConnectionError("read only");
  });
  EXPECT_EQ(ErrorOf<RendezvousConnectionError>([&] { node->NextRendezvous(); }), "read only");
  EXPECT_FALSE(cell().Bytes());
  cell().SetHook({});
  EXPECT_EQ(node->NextRendezvous().world_size, 1) << "and it works again";
}

TEST_F(HandlerTest, Rdzv046WhatIsNoStateIsAStateErrorUntilItIsOneAgain) {
  const auto node = Alone(QuickSettings(1, 2));
  node->NextRendezvous();
  node->Shutdown();
  const std::string good = *cell().Bytes();
  for (const std::string& bytes :
       {std::string(), std::string("garbage"), std::string("\x80\x04]\x94(h\x00h\x00", 9),
        std::string("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."),
        good.substr(0, good.size() / 2), good + "tail"}) {
    cell().Put(bytes);
    // The reader's own error is attached: what was wrong, and at which byte.
    const std::string original = wire::ReadState(bytes).error().message;
    ASSERT_FALSE(original.empty());
    EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { Alone()->NextRendezvous(); }),
                HasSubstr(original));
    EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { Alone()->IsClosed(); }), HasSubstr(original));
    EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { Alone()->NumNodesWaiting(); }),
                HasSubstr(original));
    EXPECT_FALSE(Alone()->Shutdown());
    EXPECT_EQ(cell().Bytes(), bytes) << "it is left to nodes that understand it";
  }
  const auto late = Alone();
  EXPECT_THROW(late->IsClosed(), RendezvousStateError);
  cell().Put(good);
  EXPECT_TRUE(late->IsClosed());
}

TEST_F(HandlerTest, ACloseThatFindsNothingStoredAnyMoreIsWrittenAnyway) {
  const auto node = Alone();
  node->NextRendezvous();
  cell().ForgetAtNextWrite();
  node->SetClosed("the end");
  EXPECT_TRUE(cell().State().closed);
  EXPECT_EQ(cell().State().closed_by, node->node() + ": the end");
}

TEST_F(HandlerTest, ARoundThatFindsNothingStoredAnyMoreIsWrittenAnyway) {
  const auto node = Alone();
  node->NextRendezvous();
  cell().SetHook([&, done = std::make_shared<std::atomic<bool>>(false)](bool writes) {
    if (writes && cell().State().round == 1 && !done->exchange(true)) cell().ForgetAtNextWrite();
  });
  const RendezvousInfo info = node->NextRendezvous();
  EXPECT_EQ(info.world_size, 1);
  EXPECT_TRUE(cell().State().participants.contains(NodeNamed(node->node())));
  cell().SetHook({});
}

TEST_F(HandlerTest, ABackendThatNeverKeepsAnythingDoesNotKeepTheCallerForEver) {
  RendezvousSettings settings = QuickSettings(1, 1);
  settings.close_timeout = milliseconds(50);
  const auto node = Alone(settings);
  cell().SetHook([this](bool writes) {
    if (writes) cell().ForgetAtNextWrite();
  });
  EXPECT_THROW(node->SetClosed(), RendezvousTimeoutError);
  EXPECT_FALSE(node->Shutdown());
}

TEST_F(HandlerTest, CountsWhatItCost) {
  const auto node = Alone();
  EXPECT_EQ(node->cost().reads + node->cost().writes + node->cost().lost, 0);
  node->NextRendezvous();
  EXPECT_GE(node->cost().reads, 1);
  EXPECT_GE(node->cost().writes, 1);
  node->Shutdown();
  EXPECT_EQ(node->cost().reads, cell().gets);
  EXPECT_EQ(node->cost().writes, cell().sets);
  EXPECT_EQ(node->cost().lost, 0);
}

}  // namespace muster::test
