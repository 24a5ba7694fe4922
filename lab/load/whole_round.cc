#include "load/whole_round.h"

#include <algorithm>
#include <utility>

namespace muster::load {

bool IsWholeRound(const std::vector<const Push*>& assignments) {
  std::vector<char> taken(assignments.size());
  const auto size = static_cast<int64_t>(assignments.size());
  return size > 0 && std::ranges::all_of(assignments, [&](const Push* each) {
           if (each->world_size != size || each->round != assignments[0]->round) return false;
           if (each->rank < 0 || each->rank >= size) return false;
           return std::exchange(taken[static_cast<size_t>(each->rank)], 1) == 0;
         });
}

}  // namespace muster::load
