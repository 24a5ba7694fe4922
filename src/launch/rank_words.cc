#include "launch/rank_words.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace muster {

namespace {

using Json = nlohmann::ordered_json;

// Other nodes are not trusted: no overflow, and no memory without a limit.
constexpr int64_t kWorkersMax = 1 << 20;
constexpr int64_t kRanksMax = int64_t{1} << 40;

Error Foreign(std::string_view what, std::string_view json) {
  return {Code::kProtocol,
          Concat("a node has sent '", Printable(json), "', which is not a valid ", what)};
}

// Python separates items so; a reader of both would see no difference.
std::string Spaced(const Json& json) {
  std::string text = json.is_array() ? "[" : "{";
  for (const auto& [key, value] : json.items()) {
    if (text.size() > 1) text += ", ";
    if (json.is_object()) text += Concat(Json(key).dump(), ": ");
    text += value.dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  return text + (json.is_array() ? "]" : "}");
}

}  // namespace

std::string RoleInfoKey(int64_t group_rank) {
  return Concat("torchelastic/role_info/", group_rank);
}
std::string AssignedRanksKey(int64_t group_rank) {
  return Concat("torchelastic/assigned_ranks/", group_rank);
}

std::string ToJson(const NodeRole& node, int64_t group_rank) {
  return Spaced({{"role", node.role}, {"rank", group_rank}, {"local_world_size", node.workers}});
}

Result<NodeRole> ParseNodeRole(std::string_view json) {
  const Json parsed = Json::parse(json, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("role") || !parsed["role"].is_string() ||
      !parsed.contains("local_world_size") || !parsed["local_world_size"].is_number_integer())
    return Foreign("role with its number of workers", json);
  const auto workers = parsed["local_world_size"].get<int64_t>();
  if (workers < 1 || workers > kWorkersMax) return Foreign("number of workers", json);
  return NodeRole{.role = parsed["role"].get<std::string>(), .workers = workers};
}

std::string ToJson(const AssignedRanks& ranks) {
  return Spaced(Json::array(
      {ranks.first_rank, ranks.world_size, ranks.first_role_rank, ranks.role_world_size}));
}

Result<AssignedRanks> ParseAssignedRanks(std::string_view json) {
  constexpr std::string_view kWhat = "assignment of ranks";
  const Json parsed = Json::parse(json, nullptr, false);
  if (!parsed.is_array() || parsed.size() != 4) return Foreign(kWhat, json);
  std::array<int64_t, 4> numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!parsed[i].is_number_integer()) return Foreign(kWhat, json);
    numbers[i] = parsed[i].get<int64_t>();
    if (numbers[i] < 0 || numbers[i] > kRanksMax) return Foreign(kWhat, json);
  }
  const auto [first, world, first_role, role_world] = numbers;
  if (first >= world || first_role >= role_world || role_world > world) return Foreign(kWhat, json);
  return AssignedRanks{first, world, first_role, role_world};
}

}  // namespace muster
