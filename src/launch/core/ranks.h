// The ranks of all workers, computed by the first node from the role and the number of workers of
// each node. PyTorch's agents do the same, through the same keys of the round's store, in JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace muster {

/// The data that a node publishes.
struct NodeRole {
  std::string role;
  int64_t workers = 0;
  std::string entry_point{};  ///< The name of the script, without its path; may be empty.
};

/// The data that a node receives: the first ranks of its workers.
struct AssignedRanks {
  int64_t first_rank = 0;
  int64_t world_size = 0;
  int64_t first_role_rank = 0;
  int64_t role_world_size = 0;

  bool operator==(const AssignedRanks&) const = default;
};

/// In the order of the nodes' ranks. Roles do not change the order: the workers of a node follow
/// those of the previous node, whatever their roles.
std::vector<AssignedRanks> AssignRanks(std::span<const NodeRole> nodes);

std::string RoleInfoKey(int64_t group_rank);
std::string AssignedRanksKey(int64_t group_rank);

/// {"role": "default", "rank": 0, "local_world_size": 2}; and "entry_point", unless it is empty:
/// PyTorch's agents ignore it.
std::string ToJson(const NodeRole& node, int64_t group_rank);
/// kProtocol.
Result<NodeRole> ParseNodeRole(std::string_view json);

/// [2, 6, 0, 1]: first rank, world size, first role rank, role world size.
std::string ToJson(const AssignedRanks& ranks);
/// kProtocol, also for numbers that are out of range.
Result<AssignedRanks> ParseAssignedRanks(std::string_view json);

}  // namespace muster
