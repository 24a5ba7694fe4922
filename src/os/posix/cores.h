// How many cores this process can use. Any thread; reads files of the kernel.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace muster {

inline constexpr int kCpusMax = 65'536;  ///< More than any kernel counts.

/// The CPUs that this process may use, ascending. kUnavailable.
Result<std::vector<int>> OwnCpus();

/// The cores of the process's affinity mask, or as many as the CPU quotas of its control groups
/// (version 2) allow, rounded up, if those are fewer. At least one.
size_t UsableCores();

/// The least CPU quota of the folder and its parents (cpu.max), in whole cores, rounded up;
/// SIZE_MAX if there is none.
size_t LeastCpuQuota(std::string folder);

/// The default number of loops of a server: half of the usable cores, at least one. The clients on
/// this machine need the others, and loops that outnumber the busy ones only wake each other.
int DefaultLoops();

}  // namespace muster
