#include "launch/core/ranks.h"

#include <map>
#include <string_view>

namespace muster {

std::vector<AssignedRanks> AssignRanks(std::span<const NodeRole> nodes) {
  std::vector<AssignedRanks> assigned;
  int64_t all = 0;
  std::map<std::string_view, int64_t> of_role;
  for (const NodeRole& node : nodes) {
    int64_t& alike = of_role[node.role];
    assigned.push_back({.first_rank = all, .first_role_rank = alike});
    all += node.workers;
    alike += node.workers;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    assigned[i].world_size = all;
    assigned[i].role_world_size = of_role[nodes[i].role];
  }
  return assigned;
}

}  // namespace muster
