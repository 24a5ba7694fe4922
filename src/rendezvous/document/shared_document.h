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
#include "os/ports/clock.h"
#include "rendezvous/core/observation.h"
#include "rendezvous/core/rules.h"
#include "rendezvous/core/state.h"
#include "rendezvous/document/state_backend.h"

namespace muster {

/// One thread at a time; Sync() blocks as long as the backend does.
class SharedDocument {
 public:
  enum class Freshness { kAny, kNow };  ///< kAny: a copy up to `cache_max` old will do.
  enum class Outcome { kCached, kRead, kStored, kLost };

  SharedDocument(StateBackend& backend, const RendezvousRules& rules, Clock& clock,
                 Duration cache_max);

  /// Writes the change that was made, if any, or else reads. kLost: somebody was faster; the change
  /// is gone, and state() is theirs; or nothing is stored at all. Then, as after an error, the
  /// change is still pending (dirty()), and the next Sync() writes it. Errors are the backend's;
  /// kProtocol also for a state that cannot be read.
  Result<Outcome> Sync(Freshness freshness);

  /// What this node goes by: what is stored, without those who have fallen silent.
  const RendezvousState& state() const { return state_; }
  /// What is stored, as all see it alike.
  const RendezvousState& shared() const { return shared_; }
  const Observation& observed() const { return observed_; }
  /// Whom the last Sync() took out of the copy. Others learn of it with the next write.
  const std::set<Node>& dropped() const { return dropped_; }

  /// Whose copy it is: whoever looks lives, however late its own last heartbeat is.
  void BelongsTo(Node self) { self_ = std::move(self); }

  /// The copy, to be changed; the next Sync() writes it.
  RendezvousState& Change();
  bool dirty() const { return dirty_; }

  /// When the backend was last heard; nullopt: never.
  std::optional<Instant> synced_at() const { return synced_at_; }

  int64_t reads() const { return reads_; }
  int64_t writes() const { return writes_; }
  int64_t lost() const { return lost_; }

 private:
  Result<Outcome> Write();
  Result<Outcome> Read();
  Status Adopt(std::optional<std::string> bytes);

  StateBackend& backend_;
  std::optional<Node> self_;
  const RendezvousRules& rules_;
  Clock& clock_;
  const Duration cache_max_;

  RendezvousState state_;
  RendezvousState shared_;
  std::optional<std::string> bytes_;  ///< Of shared_: the same bytes need not be read twice.
  std::any token_;
  bool dirty_ = false;
  std::optional<Instant> synced_at_;
  Observation observed_;
  std::set<Node> dropped_;
  int64_t reads_ = 0;
  int64_t writes_ = 0;
  int64_t lost_ = 0;
};

}  // namespace muster
