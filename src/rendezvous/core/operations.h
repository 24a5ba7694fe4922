// The operations of a node: join, exit, close, keep-alive. Each decides from what the node knows
// what to do next, and changes nothing. The tables in operations.cc are the protocol, one row for
// each branch. The actions that are decided are applied to the state in transitions.cc.
//
// The same decisions run in both drivers: on a node's copy of a shared document, and in the
// coordinator for all nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/time.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/observation.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/state.h"

namespace muster {

enum class Action {
  kKeepAlive,
  kAddToParticipants,
  kAddToWaitList,
  kAddToRedundancyList,
  kRemoveFromParticipants,
  kRemoveFromWaitList,
  kRemoveFromRedundancyList,
  kMarkComplete,
  kMarkClosed,
  kRestore,        ///< Others declared this node lost: it puts itself back where it was.
  kSync,           ///< Nothing to do now: check again later.
  kErrorClosed,    ///< The operation has failed: closed.
  kErrorTimeout,   ///< ... or too late.
  kErrorGraceful,  ///< Closed while a spare: an orderly end.
  kFinish,
};

/// A node's place in a complete round, at the time when it joined.
struct Place {
  int64_t round = 0;
  int64_t rank = 0;
};

/// Everything a decision depends on.
struct Outlook {
  const RendezvousState& state;
  const Observation& observed;
  const Node& self;
  const RunSettings& settings;
  Instant now;
  Instant deadline;  ///< The deadline of the operation.
  std::optional<Place> place{};
  /// The last call of the forming round; none: that of the settings.
  std::optional<Duration> last_call{};
};

struct Decision {
  Action action;
  std::string reason;  ///< "last call expired with 3 of 4 nodes"
  /// For kSync: check again at this time even if nothing has changed.
  Instant wake_at = Instant::Never();
};

Decision DecideJoin(const Outlook& outlook);
Decision DecideExit(const Outlook& outlook);
/// For a join that its caller has interrupted: removes the node from the list that it is in.
Decision DecideGiveUp(const Outlook& outlook);
Decision DecideClose(const Outlook& outlook);
Decision DecideKeepAlive(const Outlook& outlook);

/// Whether the others have continued without a node that was at `place`: in another round, with
/// another node at its rank, or in another document.
bool LeftBehind(const RendezvousState& state, const Node& self, const Place& place);

/// Whether this node's heartbeat is due; false if it has none.
bool HeartbeatDue(const Outlook& outlook);

/// Time after the join deadline in which a node still removes itself. Later, the others detect its
/// silence.
inline constexpr Duration kRollbackWindow = 5s;

// --- Transitions. The wall clock's reading is a parameter, because it is written for PyTorch's
// agents, which compare it with their own clocks. No decision here uses it.

/// Applies an action of `self` that changes the state (not kSync, kFinish, kRestore or an error).
void Apply(Action action, const Node& self, const RunSettings& settings, WallTime now,
           RendezvousState* state);

/// Puts back a member of a complete round that others have declared lost (kRestore).
void Restore(const Node& self, int64_t rank, WallTime now, RendezvousState* state);

/// Removes silent nodes from every list. The ranks of the others do not change.
void Purge(const std::set<Node>& silent, const RunSettings& settings, RendezvousState* state);

}  // namespace muster
