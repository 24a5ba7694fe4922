// The state of a rendezvous as one node holds it: a copy of what the backend stores, the token that
// fences the next write, and what this node has observed of the others.
#pragma once

#include <any>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "muster/dynamic_rendezvous.h"
#include "os/ports/clock.h"
#include "rendezvous/core/observation.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/state.h"
#include "rendezvous/document/backend_port.h"

namespace muster {

/// One thread at a time; Sync() blocks as long as the backend does.
class SharedDocument {
 public:
  enum class Freshness { kAny, kNow };  ///< kAny: a copy up to `cache_max` old will do.
  enum class Outcome { kCached, kRead, kStored, kLost };

  SharedDocument(BackendPort& backend, const RunSettings& settings, Clock& clock,
                 Duration cache_max);

  /// Writes the pending change, if there is one, or else reads. kLost: another node was faster, its
  /// state is now state(), and the change is gone; or nothing is stored at all: then, as after an
  /// error, the change is still pending (dirty()), and the next Sync() writes it. Errors are the
  /// backend's; kProtocol also for a state that cannot be read.
  Result<Outcome> Sync(Freshness freshness);

  /// What this node decides on: what is stored, without silent nodes.
  const RendezvousState& state() const { return state_; }
  /// What is stored: the same for all nodes.
  const RendezvousState& shared() const { return shared_; }
  const Observation& observed() const { return observed_; }
  /// The nodes that the last Sync() removed from the copy. Others see it with the next write.
  const std::set<Node>& dropped() const { return dropped_; }

  /// The node whose copy it is. It is alive, however late its own last heartbeat is.
  void BelongsTo(Node self) { self_ = std::move(self); }

  /// The copy, for a change that the next Sync() writes.
  RendezvousState& Change();
  bool dirty() const { return dirty_; }

  /// When the backend last answered; nullopt: never.
  std::optional<Instant> synced_at() const { return synced_at_; }

  const RendezvousCost& cost() const { return cost_; }

 private:
  Result<Outcome> Write();
  Result<Outcome> Read();
  Status TakeOver(std::optional<std::string> bytes);

  BackendPort& backend_;
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
  std::set<Node> dropped_;
  RendezvousCost cost_;
};

}  // namespace muster
