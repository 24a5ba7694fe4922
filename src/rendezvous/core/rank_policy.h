// Who gets which rank when a round is complete.
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
  kStable,  ///< Who was in the last round keeps its rank where possible; the others fill the holes.
  kLabel,   ///< By a label, such as a rack or a switch, then as kNatural.
};

/// nullopt: no such policy.
std::optional<RankPolicy> ParseRankPolicy(std::string_view word);
std::string_view Name(RankPolicy policy);

struct Candidate {
  Node node;
  std::string label{};
  std::optional<int64_t> rank_before{};  ///< In the round that this node was last in.
};

/// For each candidate its rank, from 0 on. Depends on nothing but what is given, and not on its
/// order.
std::vector<int64_t> AssignRanks(RankPolicy policy, std::span<const Candidate> candidates);

/// Whether `a` comes before `b` where digits count by their value. A total order: what differs is
/// before or after.
bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace muster
