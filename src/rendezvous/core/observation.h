// One node's observations of the others, on its own monotonic clock.
//
// A node is alive while its heartbeat keeps changing, whatever the value is; a last call begins
// when this node first sees it. Nothing here depends on a wall clock: a machine whose clock is an
// hour off is a healthy member.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/time.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/state.h"

namespace muster {

class Observation {
 public:
  /// Notes a state that was just read or written.
  void See(const RendezvousState& state, Instant now);

  /// The part of See() that is about the last call.
  void SeeLastCall(const RendezvousState& state, Instant now);

  /// This node could not read the state for `gap`: that time does not count as silence of the
  /// others.
  void Skip(Duration gap);

  /// Nodes of `state` whose heartbeat has not changed for more than `dead_after`.
  std::set<Node> Silent(const RendezvousState& state, Duration dead_after, Instant now) const;

  /// When the node's present heartbeat was first seen; nothing if the node has none.
  std::optional<Instant> LastSeen(const Node& node) const;

  /// When the present last call was first seen.
  std::optional<Instant> last_call_since() const { return last_call_since_; }

 private:
  struct Beat {
    WallTime written;
    Instant seen_at;
    Duration forgiven = 0s;
  };
  std::map<Node, Beat> beats_;
  std::optional<WallTime> last_call_;
  std::optional<Instant> last_call_since_;
};

}  // namespace muster
