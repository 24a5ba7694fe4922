// One node's copy of the state of a rendezvous: what the backend stores, the token for the next
// write, and this node's observations of the others.
#pragma once

#include <any>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "muster/dynamic_rendezvous.h"
#include "muster/rendezvous_backend.h"
#include "os/ports/clock.h"
#include "rendezvous/core/observation.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/state.h"

namespace muster {

/// The exception that is being handled, as a value.
Error ErrorOfException();

/// One thread at a time; calls block as long as the backend does. Exceptions of the backend become
/// values (kUnavailable: out of reach; kProtocol: the stored state cannot be read; kInterrupted),
/// and are stored so that the handler can throw the same exceptions to its caller.
class SharedDocument {
 public:
  enum class Freshness { kAny, kNow };  ///< kAny: a copy up to `cache_max` old is sufficient.
  enum class Outcome { kCached, kRead, kStored, kLost };

  SharedDocument(RendezvousBackend& backend, const RunSettings& settings, Clock& clock,
                 Duration cache_max);

  /// Writes the pending change if there is one; otherwise reads. kLost: another node was faster,
  /// its state is now state(), and the change is dropped. kLost can also mean that nothing is
  /// stored: then, as after an error, the change is still pending (dirty()), and the next Sync()
  /// writes it. Errors are the backend's; kProtocol also for a state that cannot be read.
  Result<Outcome> Sync(Freshness freshness);

  /// The base of this node's decisions: the stored state without silent nodes. Others see their
  /// removal with the next write.
  const RendezvousState& state() const { return state_; }
  /// The stored state: the same for all nodes.
  const RendezvousState& shared() const { return shared_; }
  const Observation& observed() const { return observed_; }

  /// Sets the node whose copy this is. It is alive, however late its own last heartbeat is.
  void BelongsTo(Node self) { self_ = std::move(self); }

  /// Returns the copy for a change that the next Sync() writes.
  RendezvousState& Change();
  bool dirty() const { return dirty_; }

  /// When the backend last answered; nullopt: never.
  std::optional<Instant> synced_at() const { return synced_at_; }

  const RendezvousCost& cost() const { return cost_; }

  /// Wakes every node that awaits these news, now and later. Best effort: nothing depends on it.
  void Announce(std::string_view news);
  /// Blocks until the news were announced, but not for longer than `time`. Returns false
  /// immediately if this backend cannot wait: the caller sleeps instead.
  bool AwaitNews(std::string_view news, Duration time);

  /// The exception of the last error, if the backend threw one.
  std::exception_ptr TakeException() { return std::exchange(thrown_, nullptr); }

 private:
  /// `call` returns nullopt if nothing is stored.
  Result<std::optional<StoredState>> Try(const auto& call);
  Result<Outcome> Write();
  Result<Outcome> Read();
  Status TakeOver(std::optional<std::string> bytes);

  RendezvousBackend& backend_;
  std::exception_ptr thrown_;
  std::optional<Node> self_;
  const RunSettings& settings_;
  Clock& clock_;
  const Duration cache_max_;

  RendezvousState state_;
  RendezvousState shared_;
  std::optional<std::string> bytes_;  ///< Of shared_: the same bytes need not be parsed twice.
  std::any token_;
  bool dirty_ = false;
  std::optional<Instant> synced_at_;
  Observation observed_;
  RendezvousCost cost_;
};

}  // namespace muster
