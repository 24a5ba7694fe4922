// Who of all workers is who: the ranks of every node's workers, worked out by the first node from
// what each node says of itself. PyTorch's agents do the same, through the same keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster {

/// What a node says of itself.
struct NodeRole {
  std::string role;
  int64_t workers = 0;
};

/// What a node is told: its workers count on from these.
struct AssignedRanks {
  int64_t first_rank = 0;
  int64_t world_size = 0;
  int64_t first_role_rank = 0;
  int64_t role_world_size = 0;

  bool operator==(const AssignedRanks&) const = default;
};

/// By the nodes' ranks. Roles do not change the order: the workers of a node follow those of the
/// one before it, whatever they are.
std::vector<AssignedRanks> AssignRanks(std::span<const NodeRole> nodes);

}  // namespace muster
