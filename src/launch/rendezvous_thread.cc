#include "launch/rendezvous_thread.h"

#include <algorithm>

#include "base/instrumented.h"
#include "base/text.h"
#include "launch/logs/failure_json.h"
#include "muster/rendezvous_error.h"
#include "rendezvous/wait_report.h"

namespace muster {

namespace {

constexpr const char* kNumMembers = "torchelastic/agent/terminal_state/num_members";
constexpr const char* kLastMember = "torchelastic/agent/terminal_state/last_member";
constexpr const char* kFirstFailure = "muster/first_failure";
constexpr const char* kConfirmed = "muster/heard";  ///< How many nodes know that the job has ended.
constexpr const char* kReady = "muster/ready";      ///< The workers' store is served.

// A wait for a key is divided into slices, to check for membership events in between.
constexpr milliseconds kSlice{200};
// While no event comes, the contact to the rendezvous is checked this often: a tenth of contact_max
// within these limits. The upper one is the time between two keep-alives.
constexpr Duration kContactCheckMin = 1s;
constexpr Duration kContactCheckMax = 5s;
// Less than AgentRules::verdict_patience.
constexpr Duration kNoticeOfLossMax = 300ms;
// Time for the other nodes to receive the end before their server ends.
constexpr Duration kEndNoticeMax = 1s;

template <typename T>
T ValueOrError(Result<T> result) {
  if (!result) throw RendezvousError(result.error().message);
  return std::move(result).value();
}

bool AwaitKey(Store& store, const std::vector<std::string>& keys, milliseconds time) {
  try {
    store.Wait(keys, time);
    return true;
  } catch (const StoreTimeoutError&) {
    return false;
  }
}

}  // namespace

RendezvousThread::RendezvousThread(RendezvousThreadOptions options, RendezvousHandler& handler,
                                   System& around, std::function<void(AgentEvent)> report)
    : options_(std::move(options)),
      handler_(handler),
      around_(around),
      clock_(around.clock()),
      report_(std::move(report)),
      has_events_(handler.GetBackend() != "static"),
      monitor_(around.MakeMonitor()),
      thread_(around.StartThread([this] { Run(); })) {}

RendezvousThread::~RendezvousThread() {
  {
    const Lock lock(*monitor_);
    is_ending_ = true;
    monitor_->NotifyAll();
  }
  handler_.StopWaiting();
  thread_.reset();
}

void RendezvousThread::Post(Task task) {
  {
    const Lock lock(*monitor_);
    tasks_.push_back(std::move(task));
    monitor_->NotifyAll();
  }
  handler_.StopWaiting();
}

bool RendezvousThread::IsDoneBy(Instant until) {
  Lock lock(*monitor_);
  while ((is_busy_ || !tasks_.empty()) && clock_.Now() < until && !around_.has_ended())
    monitor_->WaitUntil(until);
  return !is_busy_ && tasks_.empty();
}

RendezvousThread::State RendezvousThread::state() const {
  const Lock lock(*monitor_);
  State state = state_;
  state.is_idle = !is_busy_ && tasks_.empty();
  return state;
}

void RendezvousThread::Run() {
  while (!around_.has_ended()) {
    Task task;
    {
      Lock lock(*monitor_);
      is_busy_ = false;
      monitor_->NotifyAll();
      const Instant until = NextCheck();
      while (tasks_.empty() && !is_ending_ && clock_.Now() < until && !around_.has_ended())
        monitor_->WaitUntil(until);
      if (is_ending_) return;
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
        is_busy_ = true;
      }
    }
    if (task) {
      task(*this);
    } else {
      CheckEvents();
    }
  }
}

// Requests end the wait of a handler that can be woken. Any other handler is queried periodically.
Instant RendezvousThread::NextCheck() const {
  if (!is_watching_) return Instant::Never();
  return can_be_woken_ ? clock_.Now() : checked_at_ + options_.monitor_interval;
}

// ----------------------------------------------------------------------------------------------
// membership events

void RendezvousThread::CheckEvents() {
  checked_at_ = clock_.Now();
  try {
    if (const auto event = handler_.AwaitEvent(
            can_be_woken_ ? std::chrono::duration_cast<milliseconds>(ContactPause())
                          : milliseconds{0})) {
      if (handler_.DescribeWait().phase != WaitReport::Phase::kContact) OnContact();
      OnMembership(*event);
    } else {
      is_watching_ = CheckContact();
    }
  } catch (const std::exception& error) {
    is_watching_ = false;
    Report(AgentEvent::Kind::kJobFailed, Concat("the rendezvous is lost: ", error.what()));
  }
}

void RendezvousThread::OnMembership(const MembershipEvent& event) {
  if (event.kind != MembershipEvent::Kind::kClosed)
    return Report(AgentEvent::Kind::kMembership, event.ToString());
  // PyTorch's agents close when their own workers have succeeded and their wait for the others has
  // timed out.
  if (event.who.empty() && OthersHaveSucceeded()) return;
  is_watching_ = false;
  // Reported first: the store may be slow to answer, and the workers here wait for lost peers.
  Report(AgentEvent::Kind::kJobFailed, event.ToString());
  ReadFailure();
}

// A server that has ended sends nothing, and its clients reconnect without end.
bool RendezvousThread::CheckContact() {
  const WaitReport report = handler_.DescribeWait();
  if (report.phase != WaitReport::Phase::kContact) {
    OnContact();
    return true;
  }
  const Instant now = clock_.Now();
  if (!unreachable_since_) unreachable_since_ = now;
  if (!report.trouble.empty() && !std::exchange(is_noticed_, true)) {
    Report(AgentEvent::Kind::kNotice,
           Concat(options_.where, " is gone: ", report.trouble, "; it has ",
                  Milliseconds(options_.contact_max) / 1'000, " s to come back", options_.advice));
  }
  if (now - *unreachable_since_ < options_.contact_max) return true;
  MUSTER_LAUNCH_PROBE("the server was out of reach for too long");
  {
    const Lock lock(*monitor_);
    state_.is_lost = true;
  }
  Report(AgentEvent::Kind::kJobFailed,
         Concat(options_.where, " is gone: it has been out of reach for ",
                Milliseconds(now - *unreachable_since_) / 1'000, " s",
                report.trouble.empty() ? "" : Concat(" (", report.trouble, ")"), options_.advice));
  return false;
}

void RendezvousThread::OnContact() {
  unreachable_since_.reset();
  if (std::exchange(is_noticed_, false))
    Report(AgentEvent::Kind::kNotice, Concat(options_.where, " is back"));
}

// The first time, other nodes may still have to start the server. Later it was there, and nodes
// that wait for it without workers must not do so for the whole time of a join.
RendezvousInfo RendezvousThread::NextRound() {
  const bool was_there = info_.store && has_events_;
  const auto patience = std::chrono::duration_cast<milliseconds>(ContactPause());
  const std::unique_ptr<Timer> timer =
      was_there ? around_.CallEvery("RdzvContact", patience, [this] { CheckContact(); }) : nullptr;
  return handler_.NextRendezvous();
}

Duration RendezvousThread::ContactPause() const {
  return std::clamp<Duration>(options_.contact_max / 10, kContactCheckMin, kContactCheckMax);
}

// ----------------------------------------------------------------------------------------------
// joining

// For `muster status` only: the job does not fail because of it.
void RendezvousThread::PublishRound(int64_t workers, int64_t restarts) {
  if (handler_.GetBackend() != "muster") return;
  try {
    if (restarts > 0) info_.store->Add(kRestartsKey, restarts);
    if (info_.rank != 0) return;
    info_.store->Set(kRunningKey, Concat("{\"since\": ", static_cast<int64_t>(clock_.Wall()),
                                         ", \"workers\": ", workers, "}"));
  } catch (const std::exception&) {
    // The server is gone: the next check of the contact reports that.
  }
}

void RendezvousThread::DoJoin(int64_t restarts) {
  using Kind = AgentEvent::Kind;
  const Instant began = clock_.Now();
  Set(&State::is_joining, true);
  is_watching_ = is_at_work_ = false;
  reported_.clear();
  // No check was needed while the workers ended: a time out of reach must not count on from before.
  if (has_events_ && handler_.DescribeWait().phase != WaitReport::Phase::kContact) OnContact();
  try {
    std::optional<AssignedRanks> ranks;
    while (!ranks) {
      info_ = NextRound();
      OnContact();
      ranks = Exchange();
    }
    // Not after the report: while the store is slow, no event of the round would be noticed.
    PublishRound(ranks->world_size, restarts);
    Set(&State::failure_elsewhere, "");
    Set(&State::placement, {.round = info_.round,
                            .group_rank = info_.rank,
                            .group_world_size = info_.world_size,
                            .ranks = *ranks,
                            .master = info_.bootstrap_store_info,
                            .formed_in = clock_.Now() - began});
    is_watching_ = has_events_;
    is_at_work_ = true;
    can_be_woken_ = handler_.StopWaiting();
    report_({.kind = Kind::kJoined, .alone = info_.world_size == 1 || !has_events_});
  } catch (const RendezvousGracefulExitError&) {
    Report(Kind::kNotNeeded);
  } catch (const RendezvousClosedError& error) {
    Set(&State::is_joining, false);  // what remains takes a limited time
    Report(Kind::kJoinFailed, error.what());
    ReadFailure();
  } catch (const std::exception& error) {
    {
      const Lock lock(*monitor_);
      state_.is_lost = is_noticed_;  // it was gone when the time of the join was over
    }
    Report(Kind::kJoinFailed, error.what());
  }
  Set(&State::is_joining, false);
}

std::optional<AssignedRanks> RendezvousThread::Exchange() {
  Store& store = *info_.store;
  const int64_t rank = info_.rank;
  if (options_.are_identical || Planted(Bug::kRanksUnexchanged)) {
    const int64_t first = rank * options_.role.workers;
    const int64_t world = info_.world_size * options_.role.workers;
    if (rank == 0) store.Set(kReady, "1");
    if (!AwaitKeys({kReady})) return std::nullopt;
    return AssignedRanks{first, world, first, world};
  }
  NodeRole own = options_.role;
  // Only jobs of the default id meet by mistake; those of a static rendezvous want the same port.
  if (!has_events_ || NoteOnSharedId(handler_.GetRunId()).empty()) own.entry_point.clear();
  store.Set(RoleInfoKey(rank), ToJson(own, rank));
  if (rank == 0) {
    std::vector<std::string> keys;
    for (int64_t node = 0; node < info_.world_size; ++node) keys.push_back(RoleInfoKey(node));
    if (!AwaitKeys(keys)) return std::nullopt;
    std::vector<NodeRole> nodes;
    for (const std::string& role : store.MultiGet(keys)) {
      nodes.push_back(ValueOrError(ParseNodeRole(role)));
      Compare(own, nodes.back(), std::ssize(nodes) - 1);
    }
    keys.clear();
    std::vector<std::string> answers;
    for (const AssignedRanks& ranks : AssignRanks(nodes)) {
      keys.push_back(AssignedRanksKey(std::ssize(keys)));
      answers.push_back(ToJson(ranks));
    }
    store.MultiSet(keys, answers);
  }
  const std::string mine = AssignedRanksKey(rank);
  if (!AwaitKeys({mine})) return std::nullopt;
  // The first node has published its role before: both take one round trip.
  const std::vector<std::string> found = store.MultiGet({mine, RoleInfoKey(0)});
  Compare(own, ValueOrError(ParseNodeRole(found[1])), 0);
  return ValueOrError(ParseAssignedRanks(found[0]));
}

// Nodes of one job may have different scripts if they have different roles.
void RendezvousThread::Compare(const NodeRole& own, const NodeRole& other, int64_t rank) {
  const bool is_known = !own.entry_point.empty() && !other.entry_point.empty();
  const bool differs = is_known && other.role == own.role && other.entry_point != own.entry_point;
  if (!differs || std::exchange(is_mixed_, true)) return;
  Report(AgentEvent::Kind::kNotice,
         Concat("this node runs '", Printable(own.entry_point), "', node ", rank, " of the round '",
                Printable(other.entry_point), "'", NoteOnSharedId(handler_.GetRunId())));
}

bool RendezvousThread::AwaitKeys(const std::vector<std::string>& keys) {
  const Instant deadline = DeadlineAfter(clock_.Now(), info_.store->Timeout());
  while (!AwaitKey(*info_.store, keys, kSlice)) {
    const auto event = has_events_ ? handler_.AwaitEvent(milliseconds{0}) : std::nullopt;
    if (event && event->kind == MembershipEvent::Kind::kClosed) {
      MUSTER_LAUNCH_PROBE("the rendezvous was closed while nodes exchanged ranks");
      throw RendezvousClosedError(event->ToString());
    }
    if (event) MUSTER_LAUNCH_PROBE("members came or went while nodes exchanged ranks");
    if (event || around_.has_ended()) return false;
    if (clock_.Now() < deadline) continue;
    MUSTER_LAUNCH_PROBE("nodes could not exchange ranks in time");
    throw RendezvousTimeoutError(Concat("the nodes of round ", info_.round,
                                        " have not exchanged their ranks: no '", keys.back(),
                                        "' within ", info_.store->Timeout().count() / 1'000, " s"));
  }
  return true;
}

// ----------------------------------------------------------------------------------------------
// failures

void RendezvousThread::DoReportFailure(const std::string& failure) {
  if (failure == reported_) return;
  const bool is_correction = !std::exchange(reported_, failure).empty();
  std::string first;
  try {
    first = info_.store->CompareSet(kFirstFailure, "", failure);
    std::string standing = first;
    // Bounded: other nodes correct theirs as well, and a broken one might do so without end.
    for (int64_t i = 0; i < info_.world_size && FailedBefore(failure, standing); ++i)
      standing = info_.store->CompareSet(kFirstFailure, standing, failure);
  } catch (const std::exception&) {
    MUSTER_LAUNCH_PROBE("a failure could not be told");
    // The workers of all nodes fail when the machine is lost that serves the rendezvous and theirs.
    if (IsGone()) return Report(AgentEvent::Kind::kMembership, Concat(options_.where, " is gone"));
  }
  if (is_correction) return;
  if (first == failure || first.empty()) return Report(AgentEvent::Kind::kBlame);
  Set(&State::failure_elsewhere, first);
  Report(AgentEvent::Kind::kBlame, "workers of another node have failed before");
}

// Its connection may be noticed to be broken later than that of the store.
bool RendezvousThread::IsGone() {
  const Instant until = clock_.Now() + kNoticeOfLossMax;
  while (handler_.DescribeWait().phase != WaitReport::Phase::kContact) {
    if (clock_.Now() >= until || around_.has_ended()) return false;
    clock_.SleepUntil(clock_.Now() + 5ms);
  }
  return true;
}

void RendezvousThread::ReadFailure() {
  if (!info_.store) return;
  try {
    std::string failure;
    if (info_.store->Check({kFirstFailure})) failure = info_.store->Get(kFirstFailure);
    ConfirmEnd();
    Set(&State::failure_elsewhere, failure);
  } catch (const std::exception&) {
    // The server has ended.
  }
}

bool RendezvousThread::OthersHaveSucceeded() {
  try {
    return info_.store->Add(kNumMembers, 0) > 0;
  } catch (const std::exception&) {
    return false;
  }
}

// ----------------------------------------------------------------------------------------------
// the end

void RendezvousThread::DoBarrier() {
  using Kind = AgentEvent::Kind;
  is_watching_ = is_at_work_ = false;
  try {
    if (info_.store->Add(kNumMembers, 1) == info_.world_size) info_.store->Set(kLastMember, "1");
    if (Planted(Bug::kBarrierUnawaited) || AwaitLastMember()) {
      ConfirmEnd();
      Report(Kind::kBarrierPassed);
    }
  } catch (const std::exception& error) {
    Report(Kind::kBarrierFailed, error.what());
  }
}

bool RendezvousThread::AwaitLastMember() {
  while (!AwaitKey(*info_.store, {kLastMember}, kSlice)) {
    {
      const Lock lock(*monitor_);
      if (!tasks_.empty() || is_ending_ || around_.has_ended()) return false;
    }
    const auto event = has_events_ ? handler_.AwaitEvent(milliseconds{0}) : std::nullopt;
    if (!event) continue;
    if (info_.store->Check({kLastMember})) {
      MUSTER_LAUNCH_PROBE("all had succeeded when the exit was disturbed");
      return true;
    }
    // The workers of this node have succeeded, whatever happens to the others.
    const bool closed = event->kind == MembershipEvent::Kind::kClosed;
    Report(closed ? AgentEvent::Kind::kJobFailed : AgentEvent::Kind::kMembership,
           event->ToString());
    if (closed) ReadFailure();
    return false;
  }
  return true;
}

void RendezvousThread::DoClose(const std::string& reason) {
  try {
    is_watching_ = false;
    handler_.SetClosed(reason);
    ConfirmEnd();
  } catch (const std::exception&) {
    // Its server has ended, and with it all receivers of this message.
    MUSTER_LAUNCH_PROBE("the rendezvous could not be closed");
  }
}

void RendezvousThread::ConfirmEnd() {
  if (!info_.store || std::exchange(has_confirmed_end_, true)) return;
  info_.store->Add(kConfirmed, 1);
}

// The node that serves the rendezvous waits until the others know that the job has ended.
void RendezvousThread::DoFinish() {
  if (!has_confirmed_end_) return;
  // Another node may have corrected the failure that this node reported first.
  if (!reported_.empty()) ReadFailure();
  if (!handler_.IsHost()) return;
  const Instant until = clock_.Now() + kEndNoticeMax;
  try {
    while (info_.store->Add(kConfirmed, 0) < info_.world_size && clock_.Now() < until &&
           !around_.has_ended())
      clock_.SleepUntil(clock_.Now() + 5ms);
  } catch (const std::exception&) {
    // It is not served here.
  }
}

void RendezvousThread::DoLeave() {
  is_watching_ = false;
  // The workers of other nodes now wait for lost peers. The coordinator notifies their agents when
  // our connection, or our lease, has ended; after a leave message they would continue.
  const std::string backend = handler_.GetBackend();
  if (is_at_work_ && (backend == "muster" || backend == "etcd")) return;
  try {
    handler_.Leave();
  } catch (const std::exception&) {
    // The other nodes detect it themselves.
  }
}

void RendezvousThread::Report(AgentEvent::Kind kind, std::string text) {
  report_({.kind = kind, .text = std::move(text)});
}

}  // namespace muster
