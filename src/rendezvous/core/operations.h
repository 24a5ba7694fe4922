// The operations of a node: join, exit, close, keep-alive. Each looks at what the node knows and
// decides what to do next; nothing is changed here. The tables in operations.cc are the protocol,
// one row for each branch.
//
// The same decisions run in both drivers: on a node's copy of a shared document, and in the
// coordinator for all nodes.
#pragma once

#include <cstdint>
#include <optional>
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
  kSync,           ///< Nothing to do now: look again later.
  kErrorClosed,    ///< The operation has failed: closed.
  kErrorTimeout,   ///< ... or too late.
  kErrorGraceful,  ///< Closed while a spare: an orderly end.
  kFinish,
};

/// A node's place in a complete round, as of when it joined.
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
  Instant deadline;  ///< Of the operation.
  std::optional<Place> place{};
  std::optional<Duration> last_call{};  ///< Of the round that forms; none: that of the settings.
};

struct Decision {
  Action action;
  std::string reason;                  ///< "last call expired with 3 of 4 nodes"
  Instant wake_at = Instant::Never();  ///< Of kSync: by then, look again even if nothing changed.
};

Decision DecideJoin(const Outlook& outlook);
Decision DecideExit(const Outlook& outlook);
/// Of a join that its caller has interrupted: removes the node from whichever list it is in.
Decision DecideGiveUp(const Outlook& outlook);
Decision DecideClose(const Outlook& outlook);
Decision DecideKeepAlive(const Outlook& outlook);

/// Whether the others have continued without a node that was at `place`: in another round, with
/// another node at its rank, or in another document.
bool LeftBehind(const RendezvousState& state, const Node& self, const Place& place);

/// Whether this node's heartbeat is due. Never, if it has none.
bool HeartbeatDue(const Outlook& outlook);

/// Time after the join deadline in which a node still removes itself. Later, the others notice its
/// silence.
inline constexpr Duration kRollbackWindow = 5s;

}  // namespace muster
