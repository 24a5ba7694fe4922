// How many cores this process can use. Any thread; reads files of the kernel.
#pragma once

#include <string>

namespace muster {

/// The cores of the process's affinity mask, or as many as the CPU quotas of its control groups
/// (version 2) allow, rounded up, if those are fewer. At least one.
unsigned UsableCores();

/// The least CPU quota of the folder and its parents (cpu.max), in cores; 0 if there is none.
double LeastCpuQuota(std::string folder);

/// The default number of loops of a server: half of the usable cores, at least one. The clients on
/// this machine need the others, and loops that outnumber the busy ones only wake each other.
int DefaultLoops();

}  // namespace muster
