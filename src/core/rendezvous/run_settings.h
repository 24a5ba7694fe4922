// What all nodes of a run must have been told alike.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "core/rendezvous/rank_policy.h"

namespace muster {

struct RunSettings {
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  Duration last_call = 30s;
  Duration keep_alive_interval = 1s;
  int64_t keep_alive_max_attempt = 3;
  Duration grace = 300ms;  ///< For a node whose connection broke to come back.
  RankPolicy policy = RankPolicy::kNatural;

  /// What of these differs in `other`, for people: "max_nodes 4 against 8". Empty: nothing.
  std::string Against(const RunSettings& other) const;
  bool operator==(const RunSettings&) const = default;
};

}  // namespace muster
