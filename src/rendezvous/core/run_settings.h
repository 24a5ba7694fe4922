// What all nodes of a run must have been told alike.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "rendezvous/core/rank_policy.h"
#include "rendezvous/core/rules.h"

namespace muster {

struct RunSettings {
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  Duration last_call = 30s;
  Duration keep_alive_interval = 1s;
  int64_t keep_alive_max_attempt = 3;
  Duration grace = 300ms;  ///< For a node whose connection broke to come back.
  RankPolicy policy = RankPolicy::kNatural;

  // The first two are far from where their product overflows; who is gone does not stay for longer
  // than the third.
  static constexpr Duration kKeepAliveMax = 24h;
  static constexpr int64_t kAttemptsMax = 10'000;
  static constexpr Duration kGraceMax = 1h;

  Duration dead_after() const { return keep_alive_interval * keep_alive_max_attempt; }
  /// As the machine wants them.
  RendezvousRules RulesOf(const std::string& run_id) const;
  /// Why nobody can have meant these; empty: somebody can.
  std::string Impossible() const;
  /// What of these differs in `other`, for people: "max_nodes 4 against 8". Empty: nothing.
  std::string Against(const RunSettings& other) const;
  bool operator==(const RunSettings&) const = default;
};

}  // namespace muster
