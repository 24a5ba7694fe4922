// One coordinator, shared by several loops.
//
// As with the store machine, a loop runs a request under the hub's lock, without a system call.
// Messages for sessions of other loops go into mailboxes. Every loop empties its mailbox whenever
// it holds the lock: thus each session receives all messages in the order in which they were
// decided.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/spinning_mutex.h"
#include "base/time.h"
#include "os/ports/clock.h"
#include "rendezvous/core/coordinator.h"
#include "rendezvous/wire/session_codec.h"
#include "store/core/client_id.h"

namespace muster {

/// How often Tick() should be called: far more often than any deadline needs.
inline constexpr Duration kSessionTick = 10ms;

class SessionHub {
 public:
  /// `loop_of` returns where a client's connection lives; `wake(loop)` asks that loop to call
  /// Collect() soon. It is called without the lock, from any loop's thread.
  SessionHub(const CoordinatorOptions& options, size_t loops, Clock& clock,
             std::function<size_t(ClientId)> loop_of, std::function<void(size_t loop)> wake);

  /// `keeper` keeps the keys of rounds: it is called when a scope comes into use or goes out of it,
  /// by any loop's thread, without the lock. Before the first request.
  void ReportScopesTo(std::function<void(const ScopeChange&)> keeper) {
    keeper_ = std::move(keeper);
  }

  // Each of these returns the messages for sessions of the calling loop, in order.

  /// Any request of a node but kStatus.
  Pushes Handle(size_t loop, ClientId client, const wire::SessionRequest& request);
  Pushes Disconnect(size_t loop, ClientId client);
  Pushes Tick(size_t loop);  ///< After BeginTicking(), every kSessionTick.
  Pushes Collect(size_t loop);

  /// Whether the caller's loop should tick: one of them does, for all.
  bool BeginTicking();
  /// Has Collect() called soon, on this loop.
  void Wake(size_t loop) { wake_(loop); }

  /// Shows the coordinator to `look`, between two turns.
  void Inspect(const std::function<void(const Coordinator&)>& look);

  /// The status of one run with its nodes, or (an empty id) of those after `after`, without.
  struct StatusPage {
    std::vector<RunReport> runs{};
    bool more = false;
  };
  StatusPage Status(const wire::SessionRequest& request);

  /// Whether the coordinator has nodes of this run.
  bool IsInUse(std::string_view run_id);

 private:
  template <typename Work>
  Pushes Turn(size_t loop, const Work& work);
  static void Execute(Coordinator& coordinator, SessionId session,
                      const wire::SessionRequest& request, Instant now, Pushes& out);

  Clock& clock_;
  const std::function<size_t(ClientId)> loop_of_;
  const std::function<void(size_t)> wake_;
  std::function<void(const ScopeChange&)> keeper_;
  std::atomic<Duration> next_due_{Duration::max()};
  std::atomic<Duration> ticked_at_;
  std::atomic<bool> ticks_ = false;
  SpinningMutex mutex_;
  Coordinator coordinator_;        // guarded by mutex_
  std::vector<Pushes> mailboxes_;  // guarded by mutex_, one per loop
};

}  // namespace muster
