#include "launch/core/cpu_sets.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "base/text.h"

namespace muster {

namespace {

std::optional<int> CpuNumber(std::string_view digits) {
  const std::optional<int> number = ParseAll<int>(digits);
  return number && *number >= 0 && *number <= kCpuNumberMax ? number : std::nullopt;
}

Cpus Common(const Cpus& a, const Cpus& b) {
  Cpus both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

// `cpus` in groups, ordered by the lowest member of each. `group_of` names all members of a CPU's
// group, including those that may not be used.
template <typename GroupOf>
std::vector<Cpus> Grouped(const Cpus& cpus, GroupOf group_of) {
  std::vector<Cpus> groups;
  std::set<int> done;
  for (const int cpu : cpus) {
    if (done.contains(cpu)) continue;
    Cpus group = Common(group_of(cpu), cpus);
    if (group.empty()) group = {cpu};  // The kernel does not even list the CPU itself.
    done.insert(group.begin(), group.end());
    groups.push_back(std::move(group));
  }
  return groups;
}

/// One GPU of those that share its NUMA node: "the second of three".
struct Place {
  size_t index = 0;
  size_t count = 0;
};

Place PlaceOnNode(const std::vector<int>& gpu_nodes, size_t gpu) {
  const auto self = gpu_nodes.begin() + static_cast<ptrdiff_t>(gpu);
  return {.index = static_cast<size_t>(std::count(gpu_nodes.begin(), self, *self)),
          .count = static_cast<size_t>(std::count(gpu_nodes.begin(), gpu_nodes.end(), *self))};
}

Cpus CpusOfSocket(const NumaTopology& topology, int node) {
  const auto package_of = [&](const Cpus& cpus) -> std::optional<int> {
    if (cpus.empty()) return std::nullopt;  // A node with memory only.
    return topology.cpus.at(cpus.front()).package;
  };
  const std::optional<int> package = package_of(topology.nodes.at(node));
  Cpus all;
  for (const auto& [_, cpus] : topology.nodes) {
    if (package && package_of(cpus) == package) all.insert(all.end(), cpus.begin(), cpus.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

// The first GPUs get one core more if the cores cannot be shared out evenly.
Result<Cpus> ExclusiveShare(const NumaTopology& topology, int node, const Cpus& cpus, Place place) {
  const std::vector<Cpus> cores =
      Grouped(cpus, [&](int cpu) { return topology.cpus.at(cpu).threads; });
  if (cores.size() < place.count) {
    return MakeError(Code::kInvalid, "binding exclusively takes a core for each of the ",
                     place.count, " GPUs of NUMA node ", node, ", and ", cores.size(),
                     " may be used: bind to node or socket instead");
  }
  const size_t each = cores.size() / place.count;
  const size_t left_over = cores.size() % place.count;
  const size_t begin = place.index * each + std::min(place.index, left_over);
  const size_t end = begin + each + (place.index < left_over ? 1 : 0);
  Cpus share;
  for (size_t i = begin; i < end; ++i) share.insert(share.end(), cores[i].begin(), cores[i].end());
  std::sort(share.begin(), share.end());
  return share;
}

Result<Cpus> CacheShare(const NumaTopology& topology, const Cpus& cpus, Place place) {
  for (const int cpu : cpus) {
    if (topology.cpus.at(cpu).cache.empty()) {
      return MakeError(Code::kInvalid, "CPU ", cpu,
                       " does not report which others share its cache, and core-complex needs "
                       "that: bind to node instead");
    }
  }
  std::vector<Cpus> groups = Grouped(cpus, [&](int cpu) { return topology.cpus.at(cpu).cache; });
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Cpus& a, const Cpus& b) { return a.size() > b.size(); });
  return groups[place.index % groups.size()];
}

}  // namespace

Result<Cpus> ParseCpuList(std::string_view text) {
  Cpus cpus;
  if (Trim(text).empty()) return cpus;
  for (const std::string_view range : Split(Trim(text), ',')) {
    const size_t dash = range.find('-');
    const std::optional<int> first = CpuNumber(range.substr(0, dash));
    const std::optional<int> last = dash == range.npos ? first : CpuNumber(range.substr(dash + 1));
    if (!first || !last || *first > *last) {
      return MakeError(Code::kInvalid, "'", Printable(text), "' is no list of CPUs as in 0-3,8");
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string FormatCpuList(const Cpus& cpus) {
  std::string text;
  for (size_t begin = 0; begin < cpus.size();) {
    size_t end = begin + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += Concat(text.empty() ? "" : ",", cpus[begin]);
    if (end - begin > 1) text += Concat("-", cpus[end - 1]);
    begin = end;
  }
  return text;
}

Result<NumaMode> ParseNumaMode(std::string_view word) {
  if (word == "node") return NumaMode::kNode;
  if (word == "socket") return NumaMode::kSocket;
  if (word == "exclusive") return NumaMode::kExclusive;
  if (word == "core-complex") return NumaMode::kCoreComplex;
  return MakeError(Code::kInvalid, "'", Printable(word),
                   "' is no way to bind workers: write node, socket, exclusive or core-complex");
}

Result<Cpus> CpusOfWorker(NumaMode mode, const NumaTopology& topology,
                          const std::vector<int>& gpu_nodes, size_t local_rank,
                          const Cpus& allowed) {
  if (local_rank >= gpu_nodes.size()) {
    return MakeError(Code::kInvalid, "worker ", local_rank, " has no GPU to run next to: there ",
                     gpu_nodes.size() == 1 ? "is " : "are ", gpu_nodes.size(),
                     "; start one worker for each, or do not bind them");
  }
  const int node = gpu_nodes[local_rank];
  if (!topology.nodes.contains(node)) {
    return MakeError(Code::kInvalid, "GPU ", local_rank, " is on NUMA node ", node,
                     ", and the system knows no CPUs of such a node");
  }
  const Cpus wanted =
      mode == NumaMode::kSocket ? CpusOfSocket(topology, node) : topology.nodes.at(node);
  const Cpus cpus = Common(wanted, allowed);
  if (cpus.empty()) {
    return MakeError(Code::kInvalid, "GPU ", local_rank, " is on NUMA node ", node,
                     " with the CPUs '", FormatCpuList(wanted),
                     "', and none of them may be used: this process is bound to '",
                     FormatCpuList(allowed), "'");
  }
  const Place place = PlaceOnNode(gpu_nodes, local_rank);
  if (mode == NumaMode::kExclusive) return ExclusiveShare(topology, node, cpus, place);
  if (mode == NumaMode::kCoreComplex) return CacheShare(topology, cpus, place);
  return cpus;
}

}  // namespace muster
