// One coordinator, shared by several loops.
//
// As with the store machine, a loop runs a request under the hub's lock, without a system call.
// Messages for sessions of other loops go into mailboxes. Every loop empties its mailbox whenever
// it holds the lock: so each session receives all messages in the order in which they were
// decided.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/spinning_mutex.h"
#include "base/time.h"
#include "os/ports/clock.h"
#include "rendezvous/core/coordinator.h"
#include "rendezvous/session/admission.h"
#include "rendezvous/wire/session_codec.h"
#include "store/core/request.h"

namespace muster {

/// The period of Tick() while there are nodes. It is shorter than deadlines need, because a longer
/// gap between two ticks shows that this process paused. Silence during a pause does not count.
inline constexpr Duration kSessionTick = 10ms;

class SessionHub {
 public:
  /// `loop_of` returns the loop of a client's connection; `wake(loop)` requests that this loop
  /// calls Collect() soon. Any loop's thread calls `wake`, without the lock.
  SessionHub(const CoordinatorOptions& options, size_t loops, Clock& clock,
             std::function<size_t(ClientId)> loop_of, std::function<void(size_t loop)> wake);

  /// `keeper` manages the keys of rounds: any loop's thread calls it, without the lock, when a
  /// scope comes into use or is no longer used, in the order of the decisions. To be called before
  /// the first request.
  void ReportScopesTo(std::function<void(const ScopeChange&)> keeper) {
    keeper_ = std::move(keeper);
  }

  // Each of these returns the messages for sessions of the calling loop, in order.

  /// Executes any request of a node except kStatus.
  Pushes Handle(size_t loop, ClientId client, const wire::SessionRequest& request);
  Pushes Disconnect(size_t loop, ClientId client);
  Pushes Tick(size_t loop);
  Pushes Collect(size_t loop);

  /// To be called when a session has been opened. One loop calls Tick(), for all of them. True: the
  /// calling loop must do so every kSessionTick from now on. Otherwise another loop does; it is
  /// woken if it rests.
  bool BeginTicking(size_t loop);
  /// Without nodes the ticking loop may rest: it must call Tick() only at the returned time, unless
  /// it is woken. nullopt: it must continue to tick.
  std::optional<Instant> TryRest();
  /// Whether `loop` is the ticking loop and must resume ticking. True once for each rest.
  bool TakeEndOfRest(size_t loop);
  /// Schedules Collect() on this loop, soon.
  void Wake(size_t loop) { wake_(loop); }

  /// Passes the coordinator to `look`, between two turns.
  void Inspect(const std::function<void(const Coordinator&)>& look);

  /// The status of one run with its nodes, or (an empty id) of the runs after `after`, without
  /// nodes.
  struct StatusPage {
    std::vector<RunReport> runs{};
    bool more = false;
  };
  StatusPage Status(const wire::SessionRequest& request);

  /// Whether `key` of the store is the document of a run that has nodes in the coordinator: nodes
  /// of backend c10d must not write it. Never waits for the coordinator, because it is called with
  /// the store's lock held.
  bool OwnsDocument(std::string_view key) {
    const std::optional<std::string_view> run = RunOfDocument(key);
    return run && IsInUse(*run);
  }

 private:
  bool IsInUse(std::string_view run_id);
  void NoteUse(std::vector<UseChange> changes);
  Pushes Turn(size_t loop, const auto& work);

  Clock& clock_;
  const std::function<size_t(ClientId)> loop_of_;
  const std::function<void(size_t)> wake_;
  std::function<void(const ScopeChange&)> keeper_;
  std::mutex keeper_mutex_;  // taken with mutex_ held, and kept while the keeper is called
  std::atomic<Duration> next_due_{Duration::max()};
  std::atomic<Duration> ticked_at_;
  static constexpr size_t kNoLoop = SIZE_MAX;
  std::atomic<size_t> ticking_loop_ = kNoLoop;
  std::atomic<bool> rests_ = false;
  SpinningMutex mutex_;
  SpinningMutex used_mutex_;                 // taken last, and only briefly
  std::set<std::string, std::less<>> used_;  // runs that have nodes; guarded by used_mutex_
  Coordinator coordinator_;                  // guarded by mutex_
  std::vector<Pushes> mailboxes_;            // guarded by mutex_, one per loop
};

}  // namespace muster
