// What the nodes of a run are configured with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "rendezvous/core/rank_policy.h"

namespace muster {

/// How long a round waits for more nodes where the coordinator knows which may come.
struct Forming {
  Duration reform_timeout = 500ms;  ///< When a round re-forms: for lost members, and newcomers.
  /// Nodes that come so soon after a round has re-formed are held back: its members are notified
  /// when as many wait as are missing, or when this time is over.
  Duration rejoin_window = 10s;
  int64_t expected = 0;  ///< A first round with so many nodes has no last call; 0: unknown.

  bool operator==(const Forming&) const = default;
};

struct RunSettings {
  // All nodes of a run must have the same of these. They travel when a session is opened.
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  Duration last_call = 30s;  ///< From reaching min_nodes to completing the round.
  Duration keep_alive_interval = 1s;
  int64_t keep_alive_max_attempt = 3;  ///< A node silent for so many intervals is declared lost.
  Duration grace = 300ms;              ///< For a node whose connection broke to come back.
  RankPolicy policy = RankPolicy::kNatural;
  /// A node of an older version sends none, and takes those of the others. A run without has the
  /// whole last call in each round.
  std::optional<Forming> forming = Forming{};

  // How long one operation of this node may take where nodes share a document. The coordinator is
  // receives it with each request.
  Duration join_timeout = 600s;
  Duration close_timeout = 30s;
  Duration heartbeat_timeout = 5s;

  // The first two are far from where their product overflows. The third bounds how long a node that
  // is gone keeps its place.
  static constexpr Duration kKeepAliveMax = 24h;
  static constexpr int64_t kAttemptsMax = 10'000;
  static constexpr Duration kGraceMax = 1h;

  Duration dead_after() const { return keep_alive_interval * keep_alive_max_attempt; }
  /// A heartbeat, or a look at the others, that is this late was missed, and not only delayed.
  Duration missed_after() const { return keep_alive_interval + keep_alive_interval / 2; }
  /// Takes what only `other` says.
  void Complete(const RunSettings& other);
  /// What is wrong with these; empty: nothing.
  std::string Impossible() const;
  /// What of the common ones differs in `other`, for people: "max_nodes 4 against 8". Empty:
  /// nothing.
  std::string Against(const RunSettings& other) const;
  bool operator==(const RunSettings&) const = default;
};

}  // namespace muster
