#include "launch/rendezvous_thread.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/planted.h"
#include "base/probe.h"
#include "base/text.h"
#include "launch/logs/failure_json.h"
#include "launch/rank_words.h"
#include "muster/rendezvous_error.h"

namespace muster {

namespace {

constexpr const char* kNumMembers = "torchelastic/agent/terminal_state/num_members";
constexpr const char* kLastMember = "torchelastic/agent/terminal_state/last_member";
constexpr const char* kFirstFailure = "muster/first_failure";
constexpr const char* kHeard = "muster/heard";  ///< How many know that the job has ended.
constexpr const char* kReady = "muster/ready";  ///< The workers' store is served.

// A wait for a key is cut into these, to look for what happens to the round meanwhile.
constexpr milliseconds kSlice{200};
// Nothing wakes a backend that is asked: less patience, so that it is left soon.
constexpr milliseconds kGlance{20};
constexpr milliseconds kLook{1'000};
// For the others to hear of the end before their server goes.
constexpr Duration kSeeOff = 1s;

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
                                   System& around, std::function<void(AgentEvent)> tell)
    : options_(std::move(options)),
      handler_(handler),
      around_(around),
      clock_(around.clock()),
      tell_(std::move(tell)),
      is_told_(handler.GetBackend() != "static"),
      monitor_(around.MakeMonitor()),
      thread_(around.StartThread([this] { Live(); })) {}

RendezvousThread::~RendezvousThread() {
  {
    const Lock lock(*monitor_);
    is_ending_ = true;
    monitor_->NotifyAll();
  }
  handler_.StopWaiting();
  thread_.reset();
}

void RendezvousThread::Join() {
  Ask([this] {
    DoJoin();
    const Lock lock(*monitor_);
    is_joining_ = false;
  });
}
void RendezvousThread::TellFailure(std::string failure) {
  Ask([this, failure = std::move(failure)] { DoTellFailure(failure); });
}
void RendezvousThread::EnterBarrier() {
  Ask([this] { DoBarrier(); });
}
void RendezvousThread::Close(std::string reason) {
  Ask([this, reason = std::move(reason)] { DoClose(reason); });
}
void RendezvousThread::Finish() {
  Ask([this] { DoFinish(); });
}
void RendezvousThread::Leave() {
  Ask([this] { DoLeave(); });
}

void RendezvousThread::Ask(Task task) {
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

bool RendezvousThread::is_joining() const {
  const Lock lock(*monitor_);
  return is_joining_;
}

bool RendezvousThread::is_idle() const {
  const Lock lock(*monitor_);
  return !is_busy_ && tasks_.empty();
}

Placement RendezvousThread::placement() const {
  const Lock lock(*monitor_);
  return placement_;
}

std::string RendezvousThread::failure_elsewhere() const {
  const Lock lock(*monitor_);
  return failure_elsewhere_;
}

void RendezvousThread::Live() {
  while (!around_.has_ended()) {
    Task task;
    {
      Lock lock(*monitor_);
      is_busy_ = false;
      monitor_->NotifyAll();
      while (tasks_.empty() && !is_ending_ && !is_watching_ && !around_.has_ended())
        monitor_->WaitUntil(Instant::Never());
      if (is_ending_) return;
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
        is_busy_ = true;
      }
    }
    if (task) {
      task();
    } else {
      Watch();
    }
  }
}

// ----------------------------------------------------------------------------------------------
// listening

void RendezvousThread::Watch() {
  try {
    if (const auto event = handler_.AwaitEvent(can_be_woken_ ? kLook : kGlance)) {
      Heard(*event);
    } else {
      NoteContact();
    }
  } catch (const std::exception& error) {
    is_watching_ = false;
    Tell(AgentEvent::Kind::kJobFailed, Concat("the rendezvous is lost: ", error.what()));
  }
}

void RendezvousThread::Heard(const MembershipEvent& event) {
  if (event.kind != MembershipEvent::Kind::kClosed)
    return Tell(AgentEvent::Kind::kMembership, event.ToString());
  // PyTorch's agents close when their own workers have succeeded and they are tired of waiting for
  // the others.
  if (event.who.empty() && OthersHaveSucceeded()) return;
  is_watching_ = false;
  // Told first: the store may be slow to answer, and the workers here wait for others in vain.
  Tell(AgentEvent::Kind::kJobFailed, event.ToString());
  ReadFailure();
}

// A server that is gone for good says nothing. Its clients try again and again.
void RendezvousThread::NoteContact() {
  const WaitReport report = handler_.DescribeWait();
  if (report.phase != WaitReport::Phase::kContact) return out_of_reach_since_.reset();
  const Instant now = clock_.Now();
  if (!out_of_reach_since_) out_of_reach_since_ = now;
  if (now - *out_of_reach_since_ < options_.contact_max) return;
  MUSTER_LAUNCH_PROBE("the server was out of reach for too long");
  is_watching_ = false;
  Tell(AgentEvent::Kind::kJobFailed,
       Concat("the rendezvous has been out of reach for ",
              Milliseconds(now - *out_of_reach_since_) / 1'000, " s",
              report.trouble.empty() ? "" : Concat(": ", report.trouble)));
}

// ----------------------------------------------------------------------------------------------
// joining

void RendezvousThread::DoJoin() {
  using Kind = AgentEvent::Kind;
  const Instant began = clock_.Now();
  {
    const Lock lock(*monitor_);
    is_joining_ = true;
  }
  is_watching_ = is_at_work_ = false;
  out_of_reach_since_.reset();
  told_.clear();
  try {
    std::optional<AssignedRanks> ranks;
    while (!ranks) {
      info_ = handler_.NextRendezvous();
      ranks = Exchange();
    }
    {
      const Lock lock(*monitor_);
      failure_elsewhere_.clear();
      placement_ = {.round = info_.round,
                    .group_rank = info_.rank,
                    .group_world_size = info_.world_size,
                    .ranks = *ranks,
                    .master = info_.bootstrap_store_info,
                    .formed_in = clock_.Now() - began};
    }
    is_watching_ = is_told_;
    is_at_work_ = true;
    can_be_woken_ = handler_.StopWaiting();
    tell_({.kind = Kind::kJoined, .alone = info_.world_size == 1 || !is_told_});
  } catch (const RendezvousGracefulExitError&) {
    Tell(Kind::kNotNeeded);
  } catch (const RendezvousClosedError& error) {
    {
      const Lock lock(*monitor_);
      is_joining_ = false;  // what is left may be waited for
    }
    Tell(Kind::kJoinFailed, error.what());
    ReadFailure();
  } catch (const std::exception& error) {
    Tell(Kind::kJoinFailed, error.what());
  }
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
  store.Set(RoleInfoKey(rank), ToJson(options_.role, rank));
  if (rank == 0) {
    std::vector<std::string> keys;
    for (int64_t node = 0; node < info_.world_size; ++node) keys.push_back(RoleInfoKey(node));
    if (!AwaitKeys(keys)) return std::nullopt;
    std::vector<NodeRole> nodes;
    for (const std::string& said : store.MultiGet(keys))
      nodes.push_back(ValueOrError(ParseNodeRole(said)));
    std::vector<std::string> answers;
    for (const AssignedRanks& ranks : AssignRanks(nodes)) answers.push_back(ToJson(ranks));
    for (int64_t node = 0; node < info_.world_size; ++node)
      keys[static_cast<size_t>(node)] = AssignedRanksKey(node);
    store.MultiSet(keys, answers);
  }
  const std::string mine = AssignedRanksKey(rank);
  if (!AwaitKeys({mine})) return std::nullopt;
  return ValueOrError(ParseAssignedRanks(store.Get(mine)));
}

bool RendezvousThread::AwaitKeys(const std::vector<std::string>& keys) {
  const Instant deadline = DeadlineAfter(clock_.Now(), info_.store->Timeout());
  while (!AwaitKey(*info_.store, keys, kSlice)) {
    const auto event = is_told_ ? handler_.AwaitEvent(milliseconds{0}) : std::nullopt;
    if (event && event->kind == MembershipEvent::Kind::kClosed) {
      MUSTER_LAUNCH_PROBE("the rendezvous was closed while nodes exchanged ranks");
      throw RendezvousClosedError(event->ToString());
    }
    if (event) MUSTER_LAUNCH_PROBE("members came or went while nodes exchanged ranks");
    if (event || around_.has_ended()) return false;
    if (clock_.Now() < deadline) continue;
    MUSTER_LAUNCH_PROBE("nodes could not exchange ranks in time");
    throw RendezvousTimeoutError(Concat("the nodes of round ", info_.round,
                                        " have not told each other their ranks: no '", keys.back(),
                                        "' within ", info_.store->Timeout().count() / 1'000, " s"));
  }
  return true;
}

// ----------------------------------------------------------------------------------------------
// failures

void RendezvousThread::DoTellFailure(const std::string& failure) {
  if (failure == told_) return;
  const bool is_correction = !std::exchange(told_, failure).empty();
  std::string first;
  try {
    first = info_.store->CompareSet(kFirstFailure, "", failure);
    std::string standing = first;
    // Bounded: others correct theirs as well, and a stranger might without end.
    for (int64_t i = 0; i < info_.world_size && FailedBefore(failure, standing); ++i)
      standing = info_.store->CompareSet(kFirstFailure, standing, failure);
  } catch (const std::exception&) {
    // Out of reach: then nobody else is to blame either.
    MUSTER_LAUNCH_PROBE("a failure could not be told");
  }
  if (is_correction) return;
  if (first == failure || first.empty()) return Tell(AgentEvent::Kind::kBlame);
  {
    const Lock lock(*monitor_);
    failure_elsewhere_ = first;
  }
  Tell(AgentEvent::Kind::kBlame, "workers of another node have failed before");
}

void RendezvousThread::ReadFailure() {
  if (!info_.store) return;
  try {
    std::string failure;
    if (info_.store->Check({kFirstFailure})) failure = info_.store->Get(kFirstFailure);
    NoteTheEnd();
    const Lock lock(*monitor_);
    failure_elsewhere_ = failure;
  } catch (const std::exception&) {
    // Its server has ended with it.
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
    if (Planted(Bug::kBarrierUnawaited) || AwaitOthersAtTheExit()) {
      NoteTheEnd();
      Tell(Kind::kBarrierPassed);
    }
  } catch (const std::exception& error) {
    Tell(Kind::kBarrierFailed, error.what());
  }
}

bool RendezvousThread::AwaitOthersAtTheExit() {
  while (!AwaitKey(*info_.store, {kLastMember}, kSlice)) {
    {
      const Lock lock(*monitor_);
      if (!tasks_.empty() || is_ending_ || around_.has_ended()) return false;
    }
    const auto event = is_told_ ? handler_.AwaitEvent(milliseconds{0}) : std::nullopt;
    if (!event) continue;
    if (info_.store->Check({kLastMember})) {
      MUSTER_LAUNCH_PROBE("all had succeeded when the exit was disturbed");
      return true;
    }
    // The workers of this node are done whatever happens to the others.
    const bool closed = event->kind == MembershipEvent::Kind::kClosed;
    Tell(closed ? AgentEvent::Kind::kJobFailed : AgentEvent::Kind::kMembership, event->ToString());
    if (closed) ReadFailure();
    return false;
  }
  return true;
}

void RendezvousThread::DoClose(const std::string& reason) {
  try {
    is_watching_ = false;
    handler_.SetClosed(reason);
    NoteTheEnd();
  } catch (const std::exception&) {
    // Whoever served it is gone; so are those who would have to be told.
    MUSTER_LAUNCH_PROBE("the rendezvous could not be closed");
  }
}

void RendezvousThread::NoteTheEnd() {
  if (!info_.store || std::exchange(knows_the_end_, true)) return;
  info_.store->Add(kHeard, 1);
}

// Who serves the others must not go before they know that it is over.
void RendezvousThread::DoFinish() {
  if (!knows_the_end_) return;
  // Another node may have corrected what we were the first to tell.
  if (!told_.empty()) ReadFailure();
  if (!handler_.IsHost()) return;
  const Instant until = clock_.Now() + kSeeOff;
  try {
    while (info_.store->Add(kHeard, 0) < info_.world_size && clock_.Now() < until &&
           !around_.has_ended())
      clock_.SleepUntil(clock_.Now() + 5ms);
  } catch (const std::exception&) {
    // It is not served here after all.
  }
}

void RendezvousThread::DoLeave() {
  is_watching_ = false;
  // Other nodes' workers wait in vain for those that were here. The coordinator tells their agents
  // a moment after our connection, or our lease, has ended; a good-bye would let them go on.
  const std::string backend = handler_.GetBackend();
  if (is_at_work_ && (backend == "muster" || backend == "etcd")) return;
  try {
    handler_.Leave();
  } catch (const std::exception&) {
    // They will notice.
  }
}

void RendezvousThread::Tell(AgentEvent::Kind kind, std::string text) {
  tell_({.kind = kind, .text = std::move(text)});
}

}  // namespace muster
