#include "rendezvous/session/session_hub.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/limits.h"

namespace muster {

namespace {
// A server that paused for this long has not read the keep-alives that arrived during the pause.
// Shorter pauses are normal on a busy server, and must not keep dead nodes alive.
constexpr Duration kStoodStill = 250ms;

SessionId IdOf(ClientId client) { return SessionId{static_cast<uint64_t>(client)}; }
}  // namespace

SessionHub::SessionHub(const CoordinatorOptions& options, size_t loops, Clock& clock,
                       std::function<size_t(ClientId)> loop_of,
                       std::function<void(size_t loop)> wake)
    : clock_(clock),
      loop_of_(std::move(loop_of)),
      wake_(std::move(wake)),
      ticked_at_(clock.Now().since_start),
      coordinator_(options),
      mailboxes_(loops) {}

Pushes SessionHub::Turn(size_t loop, const auto& work) {
  Pushes mine;
  Pushes decided;
  std::vector<size_t> to_wake;
  std::vector<ScopeChange> scopes;
  std::unique_lock in_order(keeper_mutex_, std::defer_lock);
  {
    const std::lock_guard lock(mutex_);
    // Read under the lock: otherwise another loop's turn could be in the future of this one.
    work(clock_.Now(), decided);
    mine.swap(mailboxes_[loop]);
    for (Push& push : decided) {
      const size_t its = loop_of_(static_cast<ClientId>(push.to));
      if (its == loop) {
        mine.push_back(std::move(push));
        continue;
      }
      // The loop of a mailbox that is not empty has been woken already.
      if (mailboxes_[its].empty()) to_wake.push_back(its);
      mailboxes_[its].push_back(std::move(push));
    }
    next_due_ = coordinator_.NextDue().since_start;
    scopes = coordinator_.TakeScopeChanges();
    NoteUse(coordinator_.TakeUseChanges());
    // Before the coordinator's lock is released: a scope that another loop drops after this turn
    // has been opened by then.
    if (!scopes.empty()) in_order.lock();
  }
  for (const ScopeChange& change : scopes) keeper_(change);
  if (in_order.owns_lock()) in_order.unlock();
  for (const size_t its : to_wake) wake_(its);
  return mine;
}

Pushes SessionHub::Handle(size_t loop, ClientId client, const wire::SessionRequest& request) {
  using Kind = wire::SessionRequest::Kind;
  const SessionKey key{.session = IdOf(client),
                       .token = request.token,
                       .incarnation = request.incarnation,
                       .round = request.round};
  return Turn(loop, [&](Instant now, Pushes& out) {
    switch (request.kind) {
      case Kind::kOpen:
        return coordinator_.Open(key.session, request.hello, now, out);
      case Kind::kJoin:
        return coordinator_.Join(key, request.join_timeout, now, out);
      case Kind::kLeave:
        return coordinator_.Leave(key, now, out);
      case Kind::kClose:
        return coordinator_.Close(key, request.reason, now, out);
      case Kind::kKeepAlive:
        return coordinator_.KeepAlive(key, now, out);
      case Kind::kStatus:
        return;
    }
  });
}

Pushes SessionHub::Disconnect(size_t loop, ClientId client) {
  return Turn(loop, [&](Instant now, Pushes&) { coordinator_.Disconnect(IdOf(client), now); });
}

Pushes SessionHub::Collect(size_t loop) {
  return Turn(loop, [](Instant, Pushes&) {});
}

bool SessionHub::BeginTicking(size_t loop) {
  size_t none = kNoLoop;
  if (ticking_loop_.compare_exchange_strong(none, loop)) {
    ticked_at_ = clock_.Now().since_start;
    return true;
  }
  if (!rests_) return false;
  if (ticking_loop_ == loop) return TakeEndOfRest(loop);
  wake_(ticking_loop_);
  return false;
}

std::optional<Instant> SessionHub::TryRest() {
  // A node is registered under the lock, and BeginTicking() is called afterwards: either the node
  // is seen here, or that call ends the rest.
  const std::lock_guard lock(mutex_);
  if (coordinator_.HasNodes()) return std::nullopt;
  rests_ = true;
  return coordinator_.NextDue();
}

bool SessionHub::TakeEndOfRest(size_t loop) {
  if (!rests_ || ticking_loop_ != loop) return false;
  const std::lock_guard lock(mutex_);
  if (!coordinator_.HasNodes()) return false;
  rests_ = false;
  ticked_at_ = clock_.Now().since_start;
  return true;
}

Pushes SessionHub::Tick(size_t loop) {
  const Duration looked_at = clock_.Now().since_start;
  const Duration gap = looked_at - ticked_at_.exchange(looked_at);
  if (gap <= kStoodStill && looked_at < next_due_.load()) return {};
  return Turn(loop, [&](Instant now, Pushes& out) {
    if (gap > kStoodStill) coordinator_.ForgiveSilence(gap, now);
    coordinator_.Tick(now, out);
  });
}

void SessionHub::Inspect(const std::function<void(const Coordinator&)>& look) {
  const std::lock_guard lock(mutex_);
  look(coordinator_);
}

SessionHub::StatusPage SessionHub::Status(const wire::SessionRequest& request) {
  const std::lock_guard lock(mutex_);
  const Instant now = clock_.Now();
  StatusPage page;
  if (!request.run_id.empty()) {
    const size_t names = std::min<size_t>(request.names_max, kStatusNamesMax);
    if (auto report = coordinator_.Report(request.run_id, names, now))
      page.runs.push_back(std::move(*report));
    return page;
  }
  page.runs = coordinator_.Reports(request.after, kStatusRunsMax + 1, now);
  page.more = page.runs.size() > kStatusRunsMax;
  if (page.more) page.runs.pop_back();
  return page;
}

void SessionHub::NoteUse(std::vector<UseChange> changes) {
  if (changes.empty()) return;
  const std::lock_guard lock(used_mutex_);
  for (UseChange& change : changes) {
    if (change.in_use) {
      used_.insert(std::move(change.run_id));
    } else {
      used_.erase(change.run_id);
    }
  }
}

bool SessionHub::IsInUse(std::string_view run_id) {
  const std::lock_guard lock(used_mutex_);
  return used_.contains(run_id);
}

}  // namespace muster
