#include "muster/dynamic_rendezvous.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "muster/network.h"
#include "muster/prefix_store.h"
#include "muster/tcp_store.h"
#include "os/ports/system.h"
#include "os/posix/process.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/document/backend_port.h"
#include "rendezvous/document/rendezvous_driver.h"
#include "rendezvous/document/shared_document.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/new_node.h"
#include "rendezvous/reconnect.h"
#include "rendezvous/rules_from.h"
#include "rendezvous/wait_report.h"
#include "store/throw.h"

namespace muster {

namespace {

constexpr Duration kCacheMax = 1s;

// The names under which PyTorch's handler reports the same things.
constexpr std::string_view kHandlerEvents = "dynamic_rendezvous:DynamicRendezvousHandler.";
constexpr std::string_view kExecutorEvents = "dynamic_rendezvous:_DistributedRendezvousOpExecutor.";

// A backend may throw anything.
constexpr std::string_view kNoException = "the backend threw something that is no std::exception";

struct ActionEvent {
  Action action;
  std::string_view name;
  std::string_view what;
  NodeState state = NodeState::kRunning;
};

constexpr std::array kActionEvents = {
    ActionEvent{Action::kKeepAlive, "_keep_alive", "sends a heartbeat"},
    ActionEvent{Action::kAddToParticipants, "_add_to_participants", "joins"},
    ActionEvent{Action::kAddToWaitList, "_add_to_wait_list", "waits for the next round"},
    ActionEvent{Action::kAddToRedundancyList, "_add_to_redundancy_list", "is a spare"},
    ActionEvent{Action::kRemoveFromParticipants, "_remove_from_participants", "leaves"},
    ActionEvent{Action::kRemoveFromWaitList, "_remove_from_wait_list", "stops waiting"},
    ActionEvent{Action::kRemoveFromRedundancyList, "_remove_from_redundancy_list",
                "is no longer a spare"},
    ActionEvent{Action::kMarkComplete, "_mark_rendezvous_complete", "completes the round",
                NodeState::kSucceeded},
    ActionEvent{Action::kMarkClosed, "_mark_rendezvous_closed", "closes the rendezvous",
                NodeState::kSucceeded},
    ActionEvent{Action::kRestore, "_restore_to_participants", "was taken for dead, and is back"},
};

template <typename T>
T MustBeThere(T given, std::string_view what) {
  if (!given) throw std::invalid_argument(Concat("DynamicRendezvousHandler: ", what, " is null"));
  return given;
}

}  // namespace

struct DynamicRendezvousHandler::Impl {
  Impl(RendezvousSettings given, std::shared_ptr<Store> its_store,
       std::unique_ptr<RendezvousBackend> its_backend, DynamicRendezvousOptions options,
       System& its_surroundings)
      : around(its_surroundings),
        settings(std::move(given)),
        rules(RulesFrom(settings)),
        store(MustBeThere(std::move(its_store), "store")),
        backend(MustBeThere(std::move(its_backend), "backend")),
        document(backend, rules, clock, kCacheMax),
        driver(
            document, backend,
            NewNode(around, options.local_addr.empty() ? FullyQualifiedName() : options.local_addr),
            rules, clock, around.Seed(), Hooks()),
        events(std::move(options.events), settings.run_id),
        bootstrap(
            store, [this](int64_t round) { return PrefixOf(round); }, driver.self().addr, around) {}

  ~Impl() { StopHeartbeats(); }

  std::string PrefixOf(int64_t round) const {
    return Concat("torch.rendezvous.", settings.run_id, ".", round);
  }

  // --- Events ---

  DriverHooks Hooks() {
    return {.on_action = [this](Action action,
                                const RendezvousState& after) { ReportAction(action, after); },
            .on_write =
                [this](bool stored) {
                  events.Record({kExecutorEvents, "run"}, NodeState::kRunning, driver.self(), [&] {
                    return Concat("node '", driver.self().ToString(), "' has ",
                                  stored ? "stored its change of" : "been beaten in changing",
                                  " rendezvous '", settings.run_id, "'");
                  });
                }};
  }

  void ReportAction(Action action, const RendezvousState& after) {
    if (!events.enabled()) return;
    for (const ActionEvent& event : kActionEvents) {
      if (event.action != action) continue;
      const bool waits = action == Action::kAddToWaitList || action == Action::kAddToRedundancyList;
      Report(event, waits ? after.round + 1 : after.round);
      // Coming brings a heartbeat, and the last one to come completes the round.
      const bool joins = action == Action::kAddToParticipants;
      if (waits || joins) Report(kActionEvents.front(), after.round);
      if (joins && after.complete) ReportAction(Action::kMarkComplete, after);
      return;
    }
  }

  void Report(const ActionEvent& event, int64_t round) {
    events.Record({kExecutorEvents, event.name}, event.state, driver.self(), [&] {
      return Concat("node '", driver.self().ToString(), "' ", event.what, ": round ", round,
                    " of rendezvous '", settings.run_id, "'");
    });
  }

  // Runs a part of the public face; whatever it throws is reported under the given name first.
  template <typename Work>
  auto Reporting(std::string_view name, Work work) {
    try {
      return work();
    } catch (const std::exception& error) {
      const auto what = [&] { return std::string(error.what()); };
      events.RecordFailure({kHandlerEvents, name}, driver.self(), what, what);
      throw;
    } catch (...) {
      const auto what = [] { return std::string(kNoException); };
      events.RecordFailure({kHandlerEvents, name}, driver.self(), what, what);
      throw;
    }
  }

  // --- From values to exceptions ---

  [[noreturn]] void Throw(const Error& error) {
    if (error.code == Code::kInterrupted) ThrowInterruptedHere(error.message);
    if (const std::exception_ptr thrown = backend.TakeException()) std::rethrow_exception(thrown);
    if (error.code == Code::kProtocol) throw RendezvousStateError(error.message);
    throw RendezvousConnectionError(error.message);
  }

  [[noreturn]] void ThrowInterruptedHere(std::string_view why) {
    WaitReport report = Describe();
    report.time_left.reset();
    ThrowInterrupted(Concat("rendezvous '", settings.run_id, "', node '", driver.self().ToString(),
                            "': ", InterruptedAfter(began, clock.Now()), " (", why, "); ",
                            report.ToString()));
  }

  template <typename T>
  T OrThrow(Result<T> result) {
    if (!result) Throw(result.error());
    return std::move(*result);
  }

  void FinishOrThrow(Result<Decision> result) {
    const Decision decision = OrThrow(std::move(result));
    const std::string who =
        Concat("rendezvous '", settings.run_id, "', node '", driver.self().ToString(), "': ");
    if (decision.action == Action::kErrorTimeout) {
      WaitReport report = Describe();
      report.time_left.reset();
      throw RendezvousTimeoutError(
          Concat(who, "time is up (", decision.reason, "); ", report.ToString()));
    }
    if (decision.action == Action::kErrorClosed) {
      throw RendezvousClosedError(Concat(who, "closed ", ClosedBy()));
    }
    if (decision.action == Action::kErrorGraceful) {
      throw RendezvousGracefulExitError(
          Concat(who, "closed ", ClosedBy(), " while this node was a spare; it is not needed"));
    }
  }

  std::string ClosedBy() const {
    const std::string& by = document.state().closed_by;
    return by.empty() ? "by a node that left no name (agents of torchrun do not)"
                      : Concat("by ", Printable(by, 512));
  }

  // --- Heartbeats ---

  void StartHeartbeats() {
    heartbeats = around.CallEvery(Concat("RdzvKeepAlive_", driver.self().local_id),
                                  settings.keep_alive_interval, [this] { Beat(); });
  }

  void StopHeartbeats() { heartbeats.reset(); }

  void Beat() {
    const std::lock_guard lock(*mutex);
    try {
      FinishOrThrow(driver.KeepAlive(place));
      events.Record({kHandlerEvents, "_keep_alive"}, NodeState::kRunning, driver.self(), [&] {
        return Concat("node '", driver.self().ToString(), "' is alive in rendezvous '",
                      settings.run_id, "'");
      });
    } catch (const std::exception& error) {
      // The next one may get through; others wait for several before they give a node up.
      const auto what = [&] { return std::string(error.what()); };
      events.RecordFailure({kHandlerEvents, "_keep_alive"}, driver.self(), what, what);
    } catch (...) {
      const auto what = [] { return std::string(kNoException); };
      events.RecordFailure({kHandlerEvents, "_keep_alive"}, driver.self(), what, what);
    }
  }

  // --- The end ---

  void Close(std::string_view reported_as, std::string_view reason) {
    const std::lock_guard lock(*mutex);
    began = clock.Now();
    Reporting(reported_as, [&] { FinishOrThrow(driver.Close(reason)); });
    events.Record({kHandlerEvents, "_close"}, NodeState::kSucceeded, driver.self(), [&] {
      return Concat("node '", driver.self().ToString(), "' has closed rendezvous '",
                    settings.run_id, "'");
    });
  }

  // --- The next round ---

  RendezvousInfo Next() {
    events.Record({kHandlerEvents, "next_rendezvous"}, NodeState::kRunning, driver.self(), [&] {
      return Concat("node '", driver.self().ToString(),
                    "' wants to join the next round of rendezvous '", settings.run_id, "'");
    });
    StopHeartbeats();
    stage = Stage::kJoining;
    driver.Forget();
    try {
      RendezvousInfo info = JoinAndBootstrap();
      stage = Stage::kResting;
      return info;
    } catch (...) {
      // Who has joined stays a member, also if it does not learn where the workers meet.
      if (stage.exchange(Stage::kResting) == Stage::kJoining) driver.Forget();
      throw;
    }
  }

  RendezvousInfo JoinAndBootstrap() {
    RendezvousInfo info = Reporting("next_rendezvous", [this] { return JoinNext(); });
    events.RecordJoined({kHandlerEvents, "next_rendezvous"}, driver.self(), info.rank, [&] {
      return Concat("node '", driver.self().ToString(), "' is rank ", info.rank, " of ",
                    info.world_size, " in round ", info.round, " of rendezvous '", settings.run_id,
                    "'");
    });
    stage = Stage::kBootstrap;
    info.bootstrap_store_info = bootstrap.Of(info.round, info.rank, First());
    return info;
  }

  RendezvousInfo JoinNext() {
    place.reset();
    began = clock.Now();
    if (document.state().round == 0) clock.SleepUntil(began + driver.FirstDelay());
    if (IsInterrupted()) ThrowInterruptedHere("before the first look");
    const Instant deadline = clock.Now() + rules.timeout.join;
    FinishOrThrow(driver.Exit(deadline));
    FinishOrThrow(driver.Join(deadline));
    // All count the members of what is stored: a copy without the silent ones may differ by node.
    const RendezvousState& agreed = document.shared();
    RendezvousInfo info{.store = nullptr,
                        .rank = agreed.participants.at(driver.self()),
                        .world_size = agreed.WorldSize(),
                        .round = agreed.round};
    SetFirst(agreed);
    KeepStore();
    info.store = std::make_shared<PrefixStore>(PrefixOf(info.round), store);
    place = Place{.round = info.round, .rank = info.rank};
    StartHeartbeats();
    return info;
  }

  // The connection may have been lost since the last round; that must not be the end of all rounds.
  void KeepStore() {
    if (StillThere(*store)) return;
    try {
      store = Reconnected(*store);
    } catch (const InterruptedError&) {
      throw;
    } catch (const std::exception& error) {
      std::throw_with_nested(RendezvousConnectionError(
          Concat("the connection to the store of the rendezvous was lost, and there was no other: ",
                 error.what())));
    }
    bootstrap.UseStore(store);
  }

  void SetFirst(const RendezvousState& agreed) {
    const std::lock_guard lock(first_mutex);
    first.reset();
    for (const auto& [node, rank] : agreed.participants) {
      if (rank == 0) first = node;
    }
  }

  std::optional<Node> First() const {
    const std::lock_guard lock(first_mutex);
    return first;
  }

  /// The others have gone on without this node, which they took for dead: it is the one to come.
  bool IsLeftBehind() { return place && LeftBehind(document.shared(), driver.self(), *place); }

  int64_t CountWaiting() {
    began = clock.Now();
    return Reporting("num_nodes_waiting", [this] {
      OrThrow(document.Sync(SharedDocument::Freshness::kAny));
      const auto waiting = static_cast<int64_t>(document.state().wait_list.size());
      return IsLeftBehind() ? std::max<int64_t>(1, waiting) : waiting;
    });
  }

  /// Those who wait beside a full round would find no place in the next one either, and their wish
  /// for one would bring its members together without end.
  int64_t NodesToMakeRoomFor() {
    const std::lock_guard lock(*mutex);
    const int64_t waiting = CountWaiting();
    const auto taken = static_cast<int64_t>(document.state().participants.size());
    return taken < rules.max_nodes || IsLeftBehind() ? waiting : 0;
  }

  WaitReport Describe() const {
    using Phase = WaitReport::Phase;
    const auto snapshot = driver.Snapshot();
    if (!snapshot && stage == Stage::kResting) return {};
    if (!snapshot) return {.phase = Phase::kContact, .run_id = settings.run_id};
    WaitReport report = ReportOn(*snapshot, driver.self(), rules, clock.Now());
    // What a heartbeat saw is no wait of anybody here.
    const bool waits = report.phase != Phase::kComplete && report.phase != Phase::kClosed;
    if (waits && stage == Stage::kResting) return {};
    if (report.phase == Phase::kComplete) {
      report.time_left.reset();
      if (stage == Stage::kBootstrap) {
        report.phase = Phase::kBootstrap;
        if (const auto rank_0 = First()) report.first = rank_0->ToString();
      }
    }
    return report;
  }

  System& around;
  const RendezvousSettings settings;
  const RendezvousRules rules;
  std::shared_ptr<Store> store;
  Clock& clock = around.clock();
  BackendPort backend;
  SharedDocument document;
  RendezvousDriver driver;
  EventRecorder events;
  Bootstrap bootstrap;
  enum class Stage { kResting, kJoining, kBootstrap };
  std::atomic<Stage> stage = Stage::kResting;
  Instant began{};  ///< The operation under way, or the last one. The caller's thread only.
  mutable std::mutex first_mutex;
  std::optional<Node> first;  ///< The round's rank 0, if it was there when this node looked.
  /// Held by heartbeats and by whoever else looks at the document meanwhile.
  const std::unique_ptr<Monitor> mutex = around.MakeMonitor();
  std::optional<Place> place;
  std::unique_ptr<Timer> heartbeats;
};

DynamicRendezvousHandler::DynamicRendezvousHandler(RendezvousSettings settings,
                                                   std::shared_ptr<Store> store,
                                                   std::unique_ptr<RendezvousBackend> backend,
                                                   DynamicRendezvousOptions options)
    : DynamicRendezvousHandler(std::move(settings), std::move(store), std::move(backend),
                               std::move(options), ThisProcess()) {}

DynamicRendezvousHandler::DynamicRendezvousHandler(RendezvousSettings settings,
                                                   std::shared_ptr<Store> store,
                                                   std::unique_ptr<RendezvousBackend> backend,
                                                   DynamicRendezvousOptions options, System& around)
    : impl_(std::make_unique<Impl>(std::move(settings), std::move(store), std::move(backend),
                                   std::move(options), around)) {}

DynamicRendezvousHandler::~DynamicRendezvousHandler() = default;

const RendezvousSettings& DynamicRendezvousHandler::settings() const { return impl_->settings; }
std::string DynamicRendezvousHandler::node() const { return impl_->driver.self().ToString(); }

RendezvousCost DynamicRendezvousHandler::cost() const {
  const std::lock_guard lock(*impl_->mutex);
  const SharedDocument& document = impl_->document;
  return {.reads = document.reads(), .writes = document.writes(), .lost = document.lost()};
}

std::string DynamicRendezvousHandler::GetBackend() const { return impl_->backend.name(); }
std::string DynamicRendezvousHandler::GetRunId() const { return impl_->settings.run_id; }
bool DynamicRendezvousHandler::IsHost() const {
  const auto* tcp = dynamic_cast<const TcpStore*>(impl_->store.get());
  return tcp != nullptr && tcp->is_server();
}
bool DynamicRendezvousHandler::UseAgentStore() const { return Bootstrap::IsShared(); }

RendezvousInfo DynamicRendezvousHandler::NextRendezvous() {
  ForgetEvents();
  return impl_->Next();
}

std::optional<MembershipEvent> DynamicRendezvousHandler::AwaitEvent(
    std::chrono::milliseconds time) {
  return LookForEvents(impl_->clock, time, [this] { return impl_->NodesToMakeRoomFor(); });
}

bool DynamicRendezvousHandler::IsClosed() {
  const std::lock_guard lock(*impl_->mutex);
  impl_->began = impl_->clock.Now();
  return impl_->Reporting("is_closed", [this] {
    impl_->OrThrow(impl_->document.Sync(SharedDocument::Freshness::kAny));
    return impl_->document.state().closed;
  });
}

void DynamicRendezvousHandler::SetClosed(std::string_view reason) {
  impl_->Close("set_closed", reason);
}

int64_t DynamicRendezvousHandler::NumNodesWaiting() {
  const std::lock_guard lock(*impl_->mutex);
  return impl_->CountWaiting();
}

void DynamicRendezvousHandler::Leave() {
  impl_->StopHeartbeats();
  impl_->place.reset();
  impl_->began = impl_->clock.Now();
  const Instant deadline = impl_->began + impl_->rules.timeout.close;
  impl_->Reporting("leave", [&] {
    const Result<Decision> left = impl_->driver.Exit(deadline);
    impl_->driver.Forget();
    impl_->FinishOrThrow(left);
  });
}

bool DynamicRendezvousHandler::Shutdown() {
  impl_->StopHeartbeats();
  try {
    impl_->Close("shutdown", "shut down");
    return true;
  } catch (const RendezvousError&) {
    return false;
  }
}

WaitReport DynamicRendezvousHandler::DescribeWait() const { return impl_->Describe(); }

std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    std::shared_ptr<Store> store, std::unique_ptr<RendezvousBackend> backend,
    const RendezvousParameters& parameters) {
  try {
    return std::make_unique<DynamicRendezvousHandler>(
        RendezvousSettings::From(parameters), std::move(store), std::move(backend),
        DynamicRendezvousOptions{.local_addr = parameters.local_addr});
  } catch (const std::exception& error) {
    const EventRecorder events({}, parameters.run_id, [] {
      return EventOrigin{.hostname = FullyQualifiedName(), .pid = ProcessId()};
    });
    const auto what = [&] { return std::string(error.what()); };
    events.RecordFailure("dynamic_rendezvous:create_handler", std::nullopt, what, what);
    throw;
  }
}

}  // namespace muster
