#include "launch/core/ranks.h"

#include <array>
#include <map>

#include "base/flat_json.h"
#include "base/text.h"

namespace muster {

namespace {

// Other nodes are not trusted: no overflow, and no memory without a limit.
constexpr int64_t kWorkersMax = 1 << 20;
constexpr int64_t kRanksMax = int64_t{1} << 40;

Error Foreign(std::string_view what, std::string_view json) {
  return {Code::kProtocol,
          Concat("a node has sent '", Printable(json), "', which is not a valid ", what)};
}

}  // namespace

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

std::string RoleInfoKey(int64_t group_rank) {
  return Concat("torchelastic/role_info/", group_rank);
}
std::string AssignedRanksKey(int64_t group_rank) {
  return Concat("torchelastic/assigned_ranks/", group_rank);
}

// With blanks, as Python separates items.
std::string ToJson(const NodeRole& node, int64_t group_rank) {
  const std::string entry_point =
      node.entry_point.empty() ? ""
                               : Concat(", \"entry_point\": ", wire::JsonString(node.entry_point));
  return Concat("{\"role\": ", wire::JsonString(node.role), ", \"rank\": ", group_rank,
                ", \"local_world_size\": ", node.workers, entry_point, "}");
}

Result<NodeRole> ParseNodeRole(std::string_view json) {
  wire::FlatJsonReader reader("a role", json);
  NodeRole node{.role = reader.Text("role"),
                .workers = reader.NumberWithin("local_world_size", 1, kWorkersMax),
                .entry_point = reader.Text("entry_point")};
  if (!reader.Outcome()) return Foreign("role with its number of workers", json);
  return node;
}

std::string ToJson(const AssignedRanks& ranks) {
  return Concat("[", ranks.first_rank, ", ", ranks.world_size, ", ", ranks.first_role_rank, ", ",
                ranks.role_world_size, "]");
}

Result<AssignedRanks> ParseAssignedRanks(std::string_view json) {
  const Error foreign = Foreign("assignment of ranks", json);
  const std::string_view list = Trim(json);
  if (!list.starts_with('[') || !list.ends_with(']')) return foreign;
  const std::vector<std::string_view> items = Split(list.substr(1, list.size() - 2), ',');
  std::array<int64_t, 4> numbers{};
  if (items.size() != numbers.size()) return foreign;
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = ParseAll<int64_t>(Trim(items[i])).value_or(-1);
    if (numbers[i] < 0 || numbers[i] > kRanksMax) return foreign;
  }
  const auto [first, world, first_role, role_world] = numbers;
  if (first >= world || first_role >= role_world || role_world > world) return foreign;
  return AssignedRanks{first, world, first_role, role_world};
}

}  // namespace muster
