#include "sim/probes.h"

// The linker's names for the ends of the section that the probes lie in; null if there is none.
extern "C" {
[[gnu::weak]] extern muster::Probe __start_muster_probes[];  // NOLINT: the linker's name
[[gnu::weak]] extern muster::Probe __stop_muster_probes[];   // NOLINT
}

namespace muster::sim {

std::span<Probe> AllProbes() { return {__start_muster_probes, __stop_muster_probes}; }

}  // namespace muster::sim
