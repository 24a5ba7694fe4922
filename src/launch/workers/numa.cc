#include "launch/workers/numa.h"

#include "base/text.h"
#include "os/posix/cores.h"
#include "os/posix/file_io.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

Result<int> ReadNumber(const fs::path& path) {
  const std::optional<std::string> text = ReadUpTo(path);
  const std::optional<int> number = ParseAll<int>(Trim(text.value_or("")));
  if (number) return *number;
  return MakeError(Code::kUnavailable, "a number was expected in ", path.string(), ", and ",
                   text ? Concat("'", Printable(*text), "' is there") : "there is no such file");
}

Result<Cpus> ReadCpuList(const fs::path& path) {
  const std::optional<std::string> text = ReadUpTo(path);
  if (!text) return MakeError(Code::kUnavailable, "cannot read ", path.string());
  const Result<Cpus> cpus = ParseCpuList(*text);
  if (!cpus) return MakeError(Code::kUnavailable, path.string(), ": ", cpus.error().message);
  return cpus;
}

// Those that share the cache of the highest level. Empty where the kernel does not say, as in some
// virtual machines; only kCoreComplex needs it.
Cpus SharersOfLastCache(const fs::path& cpu) {
  int highest = 0;
  Cpus sharers;
  for (const auto& [_, cache] : NumberedChildren(cpu / "cache", "index")) {
    const Result<int> level = ReadNumber(cache / "level");
    const Result<Cpus> shared = ReadCpuList(cache / "shared_cpu_list");
    if (!level || !shared || *level <= highest) continue;
    highest = *level;
    sharers = *shared;
  }
  return sharers;
}

}  // namespace

Result<NumaTopology> ReadNumaTopology(const std::string& sys) {
  const fs::path system = fs::path(sys) / "devices/system";
  NumaTopology topology;
  for (const auto& [node, path] : NumberedChildren(system / "node", "node")) {
    MUSTER_TRY(topology.nodes[node], ReadCpuList(path / "cpulist"));
  }
  if (topology.nodes.empty()) {
    MUSTER_TRY(topology.nodes[0], ReadCpuList(system / "cpu/online"));
  }
  for (const auto& [_, cpus] : topology.nodes) {
    for (const int cpu : cpus) {
      const fs::path path = system / Concat("cpu/cpu", cpu);
      CpuFacts& facts = topology.cpus[cpu];
      MUSTER_TRY(facts.package, ReadNumber(path / "topology/physical_package_id"));
      MUSTER_TRY(facts.threads, ReadCpuList(path / "topology/thread_siblings_list"));
      facts.cache = SharersOfLastCache(path);
    }
  }
  return topology;
}

Result<std::vector<int>> NumaNodesOf(const Gpus& gpus, const std::string& sys) {
  std::vector<int> nodes;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].pci.empty()) {
      return MakeError(Code::kUnavailable, "GPU ", i,
                       " does not say where on the bus it is, and without that its worker cannot "
                       "be bound: do not bind them");
    }
    const Result<int> node =
        ReadNumber(fs::path(sys) / "bus/pci/devices" / gpus[i].pci / "numa_node");
    if (!node) return MakeError(node.error().code, "GPU ", i, ": ", node.error().message);
    nodes.push_back(*node < 0 ? 0 : *node);  // -1: the firmware does not report it.
  }
  return nodes;
}

Result<std::vector<Cpus>> CpusOfWorkers(NumaMode mode, size_t workers,
                                        const Environment& environment,
                                        const DeviceSources& sources) {
  MUSTER_TRY(const Gpus gpus, VisibleGpus(environment, sources));
  MUSTER_TRY(const Cpus allowed, OwnCpus());
  return CpusOfWorkers(mode, workers, gpus, allowed, sources.sys);
}

Result<std::vector<Cpus>> CpusOfWorkers(NumaMode mode, size_t workers, const Gpus& gpus,
                                        const Cpus& allowed, const std::string& sys) {
  MUSTER_TRY(const NumaTopology topology, ReadNumaTopology(sys));
  MUSTER_TRY(const std::vector<int> nodes, NumaNodesOf(gpus, sys));
  std::vector<Cpus> all;
  for (size_t worker = 0; worker < workers; ++worker) {
    MUSTER_TRY(Cpus cpus, CpusOfWorker(mode, topology, nodes, worker, allowed));
    all.push_back(std::move(cpus));
  }
  return all;
}

}  // namespace muster
