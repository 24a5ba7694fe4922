#include "sim/probes.h"

// The linker's names for the ends of the sections with the probes; null if there are none.
extern "C" {
[[gnu::weak]] extern muster::Probe __start_muster_probes[];         // NOLINT: the linker's name
[[gnu::weak]] extern muster::Probe __stop_muster_probes[];          // NOLINT
[[gnu::weak]] extern muster::Probe __start_muster_launch_probes[];  // NOLINT
[[gnu::weak]] extern muster::Probe __stop_muster_launch_probes[];   // NOLINT
[[gnu::weak]] extern muster::Probe __start_muster_etcd_probes[];    // NOLINT
[[gnu::weak]] extern muster::Probe __stop_muster_etcd_probes[];     // NOLINT
}

namespace muster::sim {

std::span<Probe> AllProbes() { return {__start_muster_probes, __stop_muster_probes}; }
std::span<Probe> LaunchProbes() {
  return {__start_muster_launch_probes, __stop_muster_launch_probes};
}
std::span<Probe> EtcdProbes() { return {__start_muster_etcd_probes, __stop_muster_etcd_probes}; }

}  // namespace muster::sim
