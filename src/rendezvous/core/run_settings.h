// The configuration of the nodes of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "rendezvous/core/rank_policy.h"

namespace muster {

/// How long a round waits for more nodes if the coordinator knows which may arrive.
struct Forming {
  Duration reform_timeout = 500ms;  ///< When a round re-forms: for lost members, and newcomers.
  /// Nodes that arrive within this time after a round has re-formed are held back: its members are
  /// notified when as many wait as are missing, or when this time is over.
  Duration rejoin_window = 10s;
  int64_t expected = 0;  ///< A first round with this many nodes has no last call; 0: unknown.

  bool operator==(const Forming&) const = default;
};

struct RunSettings {
  // All nodes of a run must have the same values of these. A node sends them when it opens a
  // session.
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  Duration last_call = 30s;  ///< From reaching min_nodes to completing the round.
  Duration keep_alive_interval = 1s;
  /// A node that is silent for this many intervals is declared lost.
  int64_t keep_alive_max_attempt = 3;
  Duration grace = 300ms;  ///< The time in which a node whose connection broke may return.
  RankPolicy policy = RankPolicy::kNatural;
  /// A node of an older version sends none, and uses those of the others. Without them, each round
  /// of a run has the whole last call.
  std::optional<Forming> forming = Forming{};

  // How long one operation of this node may take if nodes share a document. The coordinator
  // receives it with each request.
  Duration join_timeout = 600s;
  Duration close_timeout = 30s;
  Duration heartbeat_timeout = 5s;
  Duration cas_backoff_max{};  ///< The longest pause after a lost write, or more.

  // The first two are far below the values whose product overflows. The third limits how long a
  // node without a connection keeps its place.
  static constexpr Duration kKeepAliveMax = 24h;
  static constexpr int64_t kAttemptsMax = 10'000;
  static constexpr Duration kGraceMax = 1h;

  Duration dead_after() const { return keep_alive_interval * keep_alive_max_attempt; }
  /// A heartbeat, or a read of the others' state, that is this late was missed, and not only
  /// delayed.
  Duration missed_after() const { return keep_alive_interval + keep_alive_interval / 2; }
  /// Takes over settings that only `other` has.
  void Complete(const RunSettings& other);
  /// Returns what is wrong with these settings; empty: nothing.
  std::string Impossible() const;
  /// Describes the common settings that differ in `other`: "max_nodes 4 against 8". Empty: none.
  std::string Against(const RunSettings& other) const;
  bool operator==(const RunSettings&) const = default;
};

}  // namespace muster
