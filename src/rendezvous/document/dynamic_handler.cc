#include "rendezvous/document/dynamic_handler.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "muster/network.h"
#include "muster/prefix_store.h"
#include "muster/tcp_store.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/document/rendezvous_driver.h"
#include "rendezvous/document/shared_document.h"
#include "rendezvous/event_recorder.h"
#include "rendezvous/option_readers.h"
#include "rendezvous/reconnect.h"
#include "rendezvous/wait_report.h"
#include "store/throw.h"

namespace muster {

namespace {

constexpr Duration kCacheMax = 1s;

// The names under which PyTorch's handler reports the same things.
constexpr std::string_view kHandlerEvents = "dynamic_rendezvous:DynamicRendezvousHandler.";
constexpr std::string_view kExecutorEvents = "dynamic_rendezvous:_DistributedRendezvousOpExecutor.";

struct ActionEvent {
  std::string_view name;
  std::string_view what;
  NodeState state = NodeState::kRunning;
};

// In the order of the actions; the others change nothing.
constexpr std::array kActionEvents = {
    ActionEvent{"_keep_alive", "sends a heartbeat"},
    ActionEvent{"_add_to_participants", "joins"},
    ActionEvent{"_add_to_wait_list", "waits for the next round"},
    ActionEvent{"_add_to_redundancy_list", "is a spare"},
    ActionEvent{"_remove_from_participants", "leaves"},
    ActionEvent{"_remove_from_wait_list", "stops waiting"},
    ActionEvent{"_remove_from_redundancy_list", "is no longer a spare"},
    ActionEvent{"_mark_rendezvous_complete", "completes the round", NodeState::kSucceeded},
    ActionEvent{"_mark_rendezvous_closed", "closes the rendezvous", NodeState::kSucceeded},
    ActionEvent{"_restore_to_participants", "was declared lost, and is back"},
};
static_assert(kActionEvents.size() == static_cast<size_t>(Action::kRestore) + 1);

template <typename T>
T MustBeThere(T given, std::string_view what) {
  if (!given) throw Invalid("DynamicRendezvousHandler: ", what, " is null");
  return given;
}

class DynamicHandler final : public DynamicRendezvousHandler {
 public:
  DynamicHandler(RendezvousSettings settings, std::shared_ptr<Store> store,
                 std::unique_ptr<RendezvousBackend> backend, const std::string& local_addr,
                 RendezvousEventSink events, System& system)
      : system_(system),
        settings_(std::move(settings)),
        run_settings_(RunSettingsOf(settings_)),
        store_(MustBeThere(std::move(store), "store")),
        backend_(MustBeThere(std::move(backend), "backend")),
        document_(*backend_, run_settings_, clock_, kCacheMax),
        driver_(document_, NewNode(system_, local_addr.empty() ? FullyQualifiedName() : local_addr),
                run_settings_, clock_, system_.Seed(), Hooks()),
        events_(std::move(events), settings_.run_id),
        bootstrap_(
            store_, [this](int64_t round) { return PrefixOf(round); }, driver_.self().addr,
            system_) {}

  ~DynamicHandler() override { heartbeats_.reset(); }

  const RendezvousSettings& settings() const override { return settings_; }
  std::string node() const override { return driver_.self().ToString(); }
  std::string GetBackend() const override { return backend_->Name(); }
  std::string GetRunId() const override { return settings_.run_id; }
  bool UseAgentStore() const override { return Bootstrap::IsShared(); }

  bool IsHost() const override {
    const auto* tcp = dynamic_cast<const TcpStore*>(store_.get());
    return tcp != nullptr && tcp->is_server();
  }

  RendezvousCost cost() const override {
    const std::lock_guard lock(*mutex_);
    return document_.cost();
  }

 private:
  enum class Stage { kResting, kJoining, kBootstrap };

  std::string PrefixOf(int64_t round) const {
    return Concat("torch.rendezvous.", settings_.run_id, ".", round);
  }

  // --- Events

  DriverHooks Hooks() {
    return {.on_action = [this](Action action,
                                const RendezvousState& after) { ReportAction(action, after); },
            .on_write =
                [this](bool stored) {
                  events_.Record({kExecutorEvents, "run"}, NodeState::kRunning, driver_.self(),
                                 stored ? "has stored its change of" : "has lost a race to change");
                }};
  }

  void ReportAction(Action action, const RendezvousState& after) {
    const bool waits = action == Action::kAddToWaitList || action == Action::kAddToRedundancyList;
    Report(action, waits ? after.round + 1 : after.round);
    // Joining includes a heartbeat, and the last node to join completes the round.
    const bool joins = action == Action::kAddToParticipants;
    if (waits || joins) Report(Action::kKeepAlive, after.round);
    if (joins && after.complete) Report(Action::kMarkComplete, after.round);
  }

  void Report(Action action, int64_t round) {
    const ActionEvent& event = kActionEvents.at(static_cast<size_t>(action));
    events_.Record({kExecutorEvents, event.name}, event.state, driver_.self(), event.what,
                   ": round ", round, " of");
  }

  // Runs a part of a public function; what it throws is reported under the given name first.
  auto Reporting(std::string_view name, auto work) {
    try {
      return work();
    } catch (...) {
      RecordFailure(name);
      throw;
    }
  }

  // To be called in a catch block: records what was thrown.
  void RecordFailure(std::string_view name) const {
    events_.RecordFailure({kHandlerEvents, name}, &driver_.self(), ErrorOfException().message);
  }

  // --- From values to exceptions

  [[noreturn]] void Throw(const Error& error) {
    if (error.code == Code::kInterrupted) ThrowInterruptedHere(error.message);
    if (const std::exception_ptr thrown = document_.TakeException()) std::rethrow_exception(thrown);
    if (error.code == Code::kProtocol) throw RendezvousStateError(error.message);
    throw RendezvousConnectionError(error.message);
  }

  [[noreturn]] void ThrowInterruptedHere(std::string_view why) {
    ThrowInterrupted(
        Concat(Who(), InterruptedAfter(began_, clock_.Now()), " (", why, "); ", AwaitedSoFar()));
  }

  void FinishOrThrow(const Result<Decision>& result) {
    if (!result) Throw(result.error());
    const std::string who = Who();
    if (result->action == Action::kErrorTimeout)
      throw RendezvousTimeoutError(
          Concat(who, "time is up (", result->reason, "); ", AwaitedSoFar()));
    if (result->action == Action::kErrorClosed)
      throw RendezvousClosedError(
          Concat(who, "closed ", ClosedBy(), First() ? "" : NoteOnSharedId(settings_.run_id)));
    if (result->action == Action::kErrorGraceful) {
      throw RendezvousGracefulExitError(
          Concat(who, "closed ", ClosedBy(), " while this node was a spare; it is not needed"));
    }
  }

  std::string Who() const {
    return Concat("rendezvous '", settings_.run_id, "', node '", node(), "': ");
  }

  // What the call that ends now has waited for.
  std::string AwaitedSoFar() const {
    WaitReport report = DescribeWait();
    report.time_left.reset();
    return report.ToString();
  }

  std::string ClosedBy() const {
    const std::string& by = document_.state().closed_by;
    return by.empty() ? "by a node that left no name (agents of torchrun do not)"
                      : Concat("by ", Printable(by, 512));
  }

  // --- Heartbeats

  void Beat() {
    const std::lock_guard lock(*mutex_);
    try {
      FinishOrThrow(driver_.KeepAlive(place_));
      events_.Record({kHandlerEvents, "_keep_alive"}, NodeState::kRunning, driver_.self(),
                     "is alive in");
    } catch (...) {
      // The next heartbeat may succeed; the others declare a node lost only after several missed
      // ones.
      RecordFailure("_keep_alive");
    }
  }

  // --- The next round

  RendezvousInfo JoinAndBootstrap() {
    RendezvousInfo info = Reporting("next_rendezvous", [this] { return JoinNext(); });
    events_.RecordJoined({kHandlerEvents, "next_rendezvous"}, driver_.self(), info.rank,
                         info.world_size, info.round);
    stage_ = Stage::kBootstrap;
    info.bootstrap_store_info = bootstrap_.Of(info.round, info.rank, First());
    return info;
  }

  RendezvousInfo JoinNext() {
    place_.reset();
    began_ = clock_.Now();
    if (document_.state().round == 0) clock_.SleepUntil(began_ + driver_.FirstDelay());
    if (IsInterrupted()) ThrowInterruptedHere("before the first look");
    const Instant deadline = clock_.Now() + run_settings_.join_timeout;
    FinishOrThrow(driver_.Exit(deadline));
    FinishOrThrow(driver_.Join(deadline));
    // All nodes count the members of the stored state: copies without the silent members may
    // differ.
    const RendezvousState& agreed = document_.shared();
    RendezvousInfo info{.store = nullptr,
                        .rank = agreed.participants.at(driver_.self()),
                        .world_size = agreed.WorldSize(),
                        .round = agreed.round};
    SetFirst(agreed);
    KeepStore();
    info.store = std::make_shared<PrefixStore>(PrefixOf(info.round), store_);
    place_ = Place{.round = info.round, .rank = info.rank};
    heartbeats_ = system_.CallEvery(Concat("RdzvKeepAlive_", driver_.self().local_id),
                                    settings_.keep_alive_interval, [this] { Beat(); });
    return info;
  }

  // The connection may have been lost since the last round; that must not prevent all further
  // rounds.
  void KeepStore() {
    if (StillThere(*store_)) return;
    store_ =
        Reaching("the connection to the store of the rendezvous was lost, and there was no other",
                 [this] { return Reconnected(*store_); });
    bootstrap_.UseStore(store_);
  }

  void SetFirst(const RendezvousState& agreed) {
    const std::lock_guard lock(first_mutex_);
    first_.reset();
    for (const auto& [node, rank] : agreed.participants) {
      if (rank == 0) first_ = node;
    }
  }

  std::optional<Node> First() const {
    const std::lock_guard lock(first_mutex_);
    return first_;
  }

  // Whether the others have declared this node lost and continued without it: then this node must
  // join.
  bool IsLeftBehind() { return place_ && LeftBehind(document_.shared(), driver_.self(), *place_); }

  // Reads the state, unless the last copy is recent enough.
  void Look(std::string_view reported_as) {
    began_ = clock_.Now();
    Reporting(reported_as, [this] {
      const auto outcome = document_.Sync(SharedDocument::Freshness::kAny);
      if (!outcome) Throw(outcome.error());
    });
  }

  int64_t CountWaiting() {
    Look("num_nodes_waiting");
    const auto waiting = static_cast<int64_t>(document_.state().wait_list.size());
    return IsLeftBehind() ? std::max<int64_t>(1, waiting) : waiting;
  }

  // Nodes that wait while the round is full would not get a place in the next one either, and its
  // members would form new rounds without end.
  int64_t NodesToMakeRoomFor() {
    const std::lock_guard lock(*mutex_);
    const int64_t waiting = CountWaiting();
    const auto taken = static_cast<int64_t>(document_.state().participants.size());
    return taken < run_settings_.max_nodes || IsLeftBehind() ? waiting : 0;
  }

  void Close(std::string_view reported_as, std::string_view reason) {
    const std::lock_guard lock(*mutex_);
    began_ = clock_.Now();
    Reporting(reported_as, [&] { FinishOrThrow(driver_.Close(reason)); });
    events_.Record({kHandlerEvents, "_close"}, NodeState::kSucceeded, driver_.self(), "has closed");
  }

 public:
  // --- The operations

  RendezvousInfo NextRendezvous() override {
    ForgetEvents();
    events_.Record({kHandlerEvents, "next_rendezvous"}, NodeState::kRunning, driver_.self(),
                   "wants to join the next round of");
    heartbeats_.reset();
    stage_ = Stage::kJoining;
    driver_.Forget();
    try {
      RendezvousInfo info = JoinAndBootstrap();
      stage_ = Stage::kResting;
      return info;
    } catch (...) {
      // A node that has joined stays a member, even if it does not learn where the workers meet.
      if (stage_.exchange(Stage::kResting) == Stage::kJoining) driver_.Forget();
      throw;
    }
  }

  bool IsClosed() override {
    const std::lock_guard lock(*mutex_);
    Look("is_closed");
    return document_.state().closed;
  }

  using RendezvousHandler::SetClosed;
  void SetClosed(std::string_view reason) override { Close("set_closed", reason); }

  int64_t NumNodesWaiting() override {
    const std::lock_guard lock(*mutex_);
    return CountWaiting();
  }

  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override {
    return PollForEvent(clock_, time, [this] { return NodesToMakeRoomFor(); });
  }

  void Leave() override {
    heartbeats_.reset();
    place_.reset();
    began_ = clock_.Now();
    const Instant deadline = began_ + run_settings_.close_timeout;
    Reporting("leave", [&] {
      const Result<Decision> left = driver_.Exit(deadline);
      driver_.Forget();
      FinishOrThrow(left);
    });
  }

  bool Shutdown() override {
    heartbeats_.reset();
    try {
      Close("shutdown", "shut down");
      return true;
    } catch (const RendezvousError&) {
      return false;
    }
  }

  WaitReport DescribeWait() const override {
    using Phase = WaitReport::Phase;
    const auto snapshot = driver_.Snapshot();
    if (!snapshot && stage_ == Stage::kResting) return {};
    if (!snapshot) return {.phase = Phase::kContact, .run_id = settings_.run_id};
    WaitReport report =
        ReportOn(*snapshot, driver_.self(), settings_.run_id, run_settings_, clock_.Now());
    // A snapshot from a heartbeat does not describe a wait.
    const bool waits = report.phase != Phase::kComplete && report.phase != Phase::kClosed;
    if (waits && stage_ == Stage::kResting) return {};
    if (report.phase == Phase::kComplete) {
      report.time_left.reset();
      if (stage_ == Stage::kBootstrap) {
        report.phase = Phase::kBootstrap;
        if (const auto rank_0 = First()) report.first = rank_0->ToString();
      }
    }
    return report;
  }

 private:
  System& system_;
  Clock& clock_ = system_.clock();
  const RendezvousSettings settings_;
  const RunSettings run_settings_;
  std::shared_ptr<Store> store_;
  const std::unique_ptr<RendezvousBackend> backend_;
  SharedDocument document_;
  RendezvousDriver driver_;
  const EventRecorder events_;
  Bootstrap bootstrap_;
  std::atomic<Stage> stage_ = Stage::kResting;
  Instant began_{};  ///< The start of the current or last operation. The caller's thread only.
  mutable std::mutex first_mutex_;
  std::optional<Node> first_;  ///< The round's rank 0, if this node has seen it.
  /// Held by heartbeats, and by callers that read the document.
  const std::unique_ptr<Monitor> mutex_ = system_.MakeMonitor();
  std::optional<Place> place_;
  std::unique_ptr<Timer> heartbeats_;
};

}  // namespace

std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    RendezvousSettings settings, std::shared_ptr<Store> store,
    std::unique_ptr<RendezvousBackend> backend, const std::string& local_addr,
    RendezvousEventSink events, System& system) {
  return std::make_unique<DynamicHandler>(std::move(settings), std::move(store), std::move(backend),
                                          local_addr, std::move(events), system);
}

std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    RendezvousSettings settings, std::shared_ptr<Store> store,
    std::unique_ptr<RendezvousBackend> backend, const std::string& local_addr,
    RendezvousEventSink events) {
  return CreateDynamicHandler(std::move(settings), std::move(store), std::move(backend), local_addr,
                              std::move(events), ThisProcess());
}

std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    std::shared_ptr<Store> store, std::unique_ptr<RendezvousBackend> backend,
    const RendezvousParameters& parameters) {
  try {
    return CreateDynamicHandler(RendezvousSettings::From(parameters), std::move(store),
                                std::move(backend), parameters.local_addr);
  } catch (const std::exception& error) {
    EventRecorder({}, parameters.run_id)
        .RecordFailure("dynamic_rendezvous:create_handler", nullptr, error.what());
    throw;
  }
}

}  // namespace muster
