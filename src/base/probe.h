// Probes in rare branches record whether tests ever took them. They compile to nothing in builds
// without MUSTER_INSTRUMENTED, those of users.
#pragma once

#include <atomic>
#include <cstdint>

namespace muster {

struct Probe {
  const char* name;
  std::atomic<uint64_t> hits;
};

}  // namespace muster

#ifdef MUSTER_INSTRUMENTED
// All probes are in one section of the program, those never reached, too.
#define MUSTER_PROBE_IN(its_section, text)                                               \
  do {                                                                                   \
    __attribute__((section(its_section), used)) static ::muster::Probe probe{text, {0}}; \
    probe.hits.fetch_add(1, std::memory_order_relaxed);                                  \
  } while (false)
#else
#define MUSTER_PROBE_IN(its_section, text) \
  do {                                     \
  } while (false)
#endif

#define MUSTER_PROBE(text) MUSTER_PROBE_IN("muster_probes", text)
/// In code that only launchers run.
#define MUSTER_LAUNCH_PROBE(text) MUSTER_PROBE_IN("muster_launch_probes", text)
/// In code that only runs with etcd.
#define MUSTER_ETCD_PROBE(text) MUSTER_PROBE_IN("muster_etcd_probes", text)
