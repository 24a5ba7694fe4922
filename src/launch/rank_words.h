// The messages in which nodes exchange ranks, as PyTorch's agents write them: JSON in keys of the
// round's store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "launch/core/ranks.h"

namespace muster {

std::string RoleInfoKey(int64_t group_rank);
std::string AssignedRanksKey(int64_t group_rank);

/// {"role": "default", "rank": 0, "local_world_size": 2}
std::string ToJson(const NodeRole& node, int64_t group_rank);
/// kProtocol.
Result<NodeRole> ParseNodeRole(std::string_view json);

/// [2, 6, 0, 1]: first rank, world size, first role rank, role world size.
std::string ToJson(const AssignedRanks& ranks);
/// kProtocol, also for numbers that are out of range.
Result<AssignedRanks> ParseAssignedRanks(std::string_view json);

}  // namespace muster
