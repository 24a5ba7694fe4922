// Which CPUs each worker of a node is bound to, so that it runs next to its GPU.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace muster {

/// Logical CPUs by their numbers in the kernel: ascending, each once.
using Cpus = std::vector<int>;

/// More than any kernel is built for; a list with larger numbers is not a list of CPUs.
inline constexpr int kCpuNumberMax = 65535;

/// "0-3,8", as the kernel writes it, with or without an end of line. An empty text is an empty
/// list. kInvalid.
Result<Cpus> ParseCpuList(std::string_view text);
std::string FormatCpuList(const Cpus& cpus);

struct CpuFacts {
  int package = 0;  ///< Its socket.
  Cpus threads{};   ///< Those of its physical core, including itself.
  Cpus cache{};     ///< Those that share its last cache before memory. Empty: not known.
};

struct NumaTopology {
  std::map<int, Cpus> nodes{};     ///< The CPUs of each NUMA node.
  std::map<int, CpuFacts> cpus{};  ///< All CPUs that `nodes` names.
};

enum class NumaMode {
  kNode,         ///< All CPUs of the GPU's NUMA node.
  kSocket,       ///< Those of all NUMA nodes on the same socket.
  kExclusive,    ///< A share of the node's physical cores that no other GPU of the node has.
  kCoreComplex,  ///< Those that share one cache; each GPU gets a different cache while there are
                 ///< enough.
};

/// "node", "socket", "exclusive", "core-complex". kInvalid.
Result<NumaMode> ParseNumaMode(std::string_view word);

/// The CPUs of the worker with this local rank, whose GPU is the one of that number. `gpu_nodes`
/// has the NUMA node of each GPU that workers see; `allowed` are the CPUs that the launcher itself
/// may use, and no worker gets other ones. Never empty. kInvalid: there is no such GPU, node or
/// share.
Result<Cpus> CpusOfWorker(NumaMode mode, const NumaTopology& topology,
                          const std::vector<int>& gpu_nodes, size_t local_rank,
                          const Cpus& allowed);

}  // namespace muster
