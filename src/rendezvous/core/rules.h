// What the nodes of a rendezvous have been told in advance, the same to all of them.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"

namespace muster {

struct RendezvousTimeouts {
  Duration join = 600s;      ///< One call of NextRendezvous.
  Duration last_call = 30s;  ///< From reaching min_nodes to closing the round's doors.
  Duration close = 30s;      ///< Marking the rendezvous closed.
  Duration heartbeat = 5s;   ///< One keep-alive.

  bool operator==(const RendezvousTimeouts&) const = default;
};

struct RendezvousRules {
  std::string run_id;
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  RendezvousTimeouts timeout{};
  Duration keep_alive_interval = 5s;
  int64_t keep_alive_max_attempt = 3;  ///< A node silent for so many intervals is dead.

  Duration dead_after() const { return keep_alive_interval * keep_alive_max_attempt; }
  /// A heartbeat, or a look at others, that is this late did not just come late.
  Duration missed_after() const { return keep_alive_interval + keep_alive_interval / 2; }
  bool operator==(const RendezvousRules&) const = default;
};

}  // namespace muster
