// Which node gets which rank when a round is complete.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/node.h"

namespace muster {

enum class RankPolicy : uint8_t {
  kNatural,  ///< By address, numbers in it by value (node2 before node10), then process and
             ///< counter.
  kText,     ///< By address as text, as PyTorch does.
  kStable,   ///< Members of the last round keep their ranks where possible; others fill the gaps.
  kLabel,    ///< By a label, such as a rack or a switch, then as kNatural.
};

/// nullopt: no such policy.
std::optional<RankPolicy> ParseRankPolicy(std::string_view word);
/// "": no such policy.
std::string_view Name(RankPolicy policy);

struct Candidate {
  Node node;
  std::string label{};
  std::optional<int64_t> rank_before{};  ///< In the round that this node was last in.
};

/// For each candidate its rank, from 0 on. Independent of the order of the candidates.
std::vector<int64_t> AssignRanks(RankPolicy policy, std::span<const Candidate> candidates);

/// Whether `a` comes before `b` where numbers are compared by value. A total order.
bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace muster
