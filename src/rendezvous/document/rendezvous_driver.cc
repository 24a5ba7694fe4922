#include "rendezvous/document/rendezvous_driver.h"

#include <algorithm>
#include <utility>

#include "base/instrumented.h"
#include "base/interruption.h"
#include "base/text.h"

namespace muster {

namespace {

constexpr Duration kFirstDelayMax = 300ms;
constexpr int64_t kHeartbeatContenders = 16;
// more nodes than ever exist; multiplied by a duration, it does not overflow
constexpr int64_t kCrowdMax = 1'000'000;
constexpr Duration kPauseAfterLossMax = 1s;
constexpr Duration kWritableAge = 2ms;
constexpr Duration kLookAgainMin = 20ms;
constexpr Duration kLookAgainMax = 1s;
constexpr int64_t kIdleShare = 8;  // reads may use one part in this number of the backend's time

bool IsFinal(Action action) {
  return action == Action::kFinish || action == Action::kErrorClosed ||
         action == Action::kErrorTimeout || action == Action::kErrorGraceful;
}

std::string Completion(int64_t round) { return Concat(round, "/MUSTER_COMPLETE"); }
std::string End(int64_t round) { return Concat(round, "/MUSTER_OVER"); }

// The parts of the state that change when something happens; heartbeats do not count.
RendezvousDriver::Shape ShapeOf(const RendezvousState& state) {
  return {state.round, state.complete, state.participants.size(), state.wait_list.size()};
}

}  // namespace

RendezvousDriver::RendezvousDriver(SharedDocument& document, Node self, const RunSettings& settings,
                                   Clock& clock, uint64_t seed, DriverHooks hooks)
    : document_(document),
      self_(std::move(self)),
      settings_(settings),
      clock_(clock),
      prng_(seed),
      hooks_(std::move(hooks)) {
  document_.BelongsTo(self_);
}

Duration RendezvousDriver::FirstDelay() {
  // One millisecond for each possible node, so that small jobs do not wait as long as large ones.
  const Duration longest =
      std::min<Duration>(kFirstDelayMax, 1ms * std::min(settings_.max_nodes, kCrowdMax));
  return Duration(static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(longest.count()))));
}

Result<Decision> RendezvousDriver::Join(Instant deadline) {
  Result<Decision> joined = Run({.decide = DecideJoin, .deadline = deadline});
  if (joined && joined->action == Action::kFinish) last_round_ = document_.shared().round;
  if (!joined && joined.error().code == Code::kInterrupted) GiveUp();
  return joined;
}

void RendezvousDriver::GiveUp() {
  const ScopedUninterrupted once;
  const auto snapshot = Snapshot();  // of the wait, and not of the clean-up
  static_cast<void>(Run({.decide = DecideGiveUp, .deadline = clock_.Now() + kInterruptionGrace}));
  const std::lock_guard lock(mutex_);
  snapshot_ = snapshot;
}

Result<Decision> RendezvousDriver::Exit(Instant deadline) {
  Result<Decision> left = Run({.decide = DecideExit, .deadline = deadline});
  if (!left && left.error().code == Code::kInterrupted) GiveUp();
  return left;
}

Result<Decision> RendezvousDriver::Close(std::string_view reason) {
  return Run({.decide = DecideClose,
              .deadline = clock_.Now() + settings_.close_timeout,
              .closed_by = reason.empty() ? self_.ToString()
                                          : Concat(self_.ToString(), ": ", Printable(reason))});
}

Result<Decision> RendezvousDriver::KeepAlive(std::optional<Place> place) {
  return Run({.decide = DecideKeepAlive,
              .deadline = clock_.Now() + settings_.heartbeat_timeout,
              .place = place});
}

Result<Decision> RendezvousDriver::Run(Operation operation) {
  SharedDocument::Freshness freshness = SharedDocument::Freshness::kAny;
  while (true) {
    const Instant began = clock_.Now();
    const int64_t round_before = document_.shared().round;
    const bool complete_before = document_.shared().complete;
    const bool closed_before = document_.shared().closed;
    MUSTER_TRY(const SharedDocument::Outcome outcome, document_.Sync(freshness));
    freshness = SharedDocument::Freshness::kAny;
    const bool stored = outcome == SharedDocument::Outcome::kStored;
    const bool lost = outcome == SharedDocument::Outcome::kLost;
    const Instant now = clock_.Now();
    if (stored || lost) {
      write_time_ = std::max<Duration>(now - began, 100us);
      if (hooks_.on_write) hooks_.on_write(stored);
    } else if (outcome == SharedDocument::Outcome::kRead) {
      read_time_ = std::max<Duration>(now - began, 50us);
    }
    if (stored) AnnounceChange(round_before, complete_before, closed_before);
    if (document_.dirty()) {
      // The stored state is lost, and the change with it: the change is valid only after the next
      // Sync() has written it again.
      if (now >= operation.deadline) return Decision{Action::kErrorTimeout, "no write was kept"};
      PauseAfterLoss(operation);
      if (IsInterrupted()) return Error{Code::kInterrupted, "no write was kept"};
      continue;
    }

    const Outlook outlook{.state = document_.state(),
                          .observed = document_.observed(),
                          .self = self_,
                          .settings = settings_,
                          .now = now,
                          .deadline = operation.deadline,
                          .place = operation.place};
    Decision decision = operation.decide(outlook);
    Publish(outlook, decision);
    if (IsFinal(decision.action)) return decision;
    if (IsInterrupted()) return Error{Code::kInterrupted, decision.reason};
    if (lost) MUSTER_PROBE("a write lost to another");
    if (lost) {
      // state() is now that of the node that was faster. After the pause others have written, too.
      PauseAfterLoss(operation);
      freshness = SharedDocument::Freshness::kNow;
      continue;
    }
    if (stored) operation.lost_in_a_row = 0;
    if (const auto shape = ShapeOf(document_.state()); shape != operation.shape) {
      operation.shape = shape;
      operation.looks_without_news = 0;
    }
    if (decision.action == Action::kSync) {
      PauseUntilNextLook(decision, operation);
      freshness = SharedDocument::Freshness::kNow;
      continue;
    }
    if (outcome == SharedDocument::Outcome::kCached &&
        now - *document_.synced_at() > kWritableAge) {
      // Recent enough to see that there is nothing to do, but too old as the base of a write.
      freshness = SharedDocument::Freshness::kNow;
      continue;
    }
    Perform(decision.action, operation);
  }
}

void RendezvousDriver::Perform(Action action, Operation& operation) {
  RendezvousState& state = document_.Change();
  if (action == Action::kRestore) {
    Restore(self_, operation.place->rank, clock_.Wall(), &state);
  } else {
    // A document that was lost with its store begins at 0; for each node, rounds only grow.
    if (action == Action::kAddToParticipants) state.round = std::max(state.round, last_round_ + 1);
    Apply(action, self_, settings_, clock_.Wall(), &state);
  }
  if (action == Action::kMarkClosed) state.closed_by = operation.closed_by;
  // A spare waits without limit. Once there is a place, its time to join starts again.
  if (action == Action::kRemoveFromRedundancyList) {
    operation.deadline = clock_.Now() + settings_.join_timeout;
  }
  if (hooks_.on_action) hooks_.on_action(action, state);
}

int64_t RendezvousDriver::Missing() const {
  const auto here = static_cast<int64_t>(document_.state().participants.size());
  return std::clamp<int64_t>(settings_.max_nodes - here, 1, kCrowdMax);
}

Duration RendezvousDriver::Draw(Duration longest) {
  return Duration(static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(longest.count()) + 1)));
}

void RendezvousDriver::AnnounceChange(int64_t round_before, bool complete_before,
                                      bool closed_before) {
  const RendezvousState& now = document_.shared();
  const bool closed = now.closed && !closed_before;
  if (closed || (now.complete && !complete_before)) document_.Announce(Completion(now.round));
  if (closed) document_.Announce(End(now.round));
  if (now.round > round_before) document_.Announce(End(round_before));
}

// If all nodes that are still missing write at the same time, the best window has one `write_time_`
// for each of them: then about one write in three is lost, whatever the number of nodes. Their
// number is not known, so the window starts small and doubles with every loss until it has that
// size.
void RendezvousDriver::PauseAfterLoss(Operation& operation) {
  const int64_t likely = std::max<int64_t>(Missing() + 1, kHeartbeatContenders);
  const int64_t contenders =
      std::min<int64_t>(int64_t{2} << std::min(operation.lost_in_a_row, 20), likely);
  ++operation.lost_in_a_row;
  // However long the option allows: the operation needs time for more tries, and other nodes must
  // not take this one for dead.
  const Instant now = clock_.Now();
  const Duration allowed = std::min({settings_.cas_backoff_max, settings_.keep_alive_interval,
                                     std::max<Duration>(operation.deadline - now, 0s) / 4});
  const Duration longest =
      std::max(std::min<Duration>(write_time_ * contenders, kPauseAfterLossMax), allowed);
  clock_.SleepUntil(std::min(now + Draw(longest), operation.deadline));
}

// The first pauses are short, later ones longer and longer: all nodes together must leave the
// backend time for other work. A pause ends at this node's next deadline (a heartbeat, the end of
// the last call) at the latest.
void RendezvousDriver::PauseUntilNextLook(const Decision& decision, Operation& operation) {
  const RendezvousState& state = document_.state();
  const auto crowd = static_cast<int64_t>(state.last_heartbeats.size());
  const Duration growing =
      kLookAgainMin * (int64_t{1} << std::min(operation.looks_without_news, 6));
  ++operation.looks_without_news;
  const Duration base = std::clamp<Duration>(std::max(growing, read_time_ * crowd * kIdleShare),
                                             kLookAgainMin, kLookAgainMax);
  const Instant now = clock_.Now();
  Instant next = now + base / 2 + Draw(base / 2);
  if (decision.wake_at <= next) {
    // The last call ends at about the same time for all nodes; it is enough if one of them acts on
    // it.
    next = decision.wake_at + 1ms + Draw(std::min<Duration>(write_time_ * 4, 50ms));
  }
  const std::string news = state.complete ? End(state.round) : Completion(state.round);
  // News without a change of the state belong to a lost state, and would arrive again immediately.
  if (operation.last_news == news || !document_.AwaitNews(news, next - now)) {
    clock_.SleepUntil(next);
  } else if (clock_.Now() < next) {
    operation.last_news = news;
  }
}

void RendezvousDriver::Publish(const Outlook& outlook, const Decision& decision) {
  // A node that timed out has removed itself already; the snapshot before that shows what it waited
  // for.
  if (decision.action == Action::kErrorTimeout && Snapshot()) return;
  if (decision.action != Action::kSync && !IsFinal(decision.action)) return;
  auto snapshot = std::make_shared<WaitSnapshot>();
  snapshot->state = outlook.state;
  snapshot->quiet = outlook.observed.Silent(outlook.state, settings_.missed_after(), outlook.now);
  if (const auto since = outlook.observed.last_call_since(); outlook.state.deadline && since) {
    snapshot->last_call_ends = *since + settings_.last_call;
  }
  snapshot->deadline = outlook.deadline;
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(snapshot);
}

std::shared_ptr<const WaitSnapshot> RendezvousDriver::Snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

void RendezvousDriver::Forget() {
  const std::lock_guard lock(mutex_);
  snapshot_.reset();
}

}  // namespace muster
