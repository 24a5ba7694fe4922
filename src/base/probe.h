// Rare branches leave a mark here, so that whoever tests can tell whether they were ever taken.
// In builds without MUSTER_INSTRUMENTED (what users run) none of this exists.
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
// All of them lie side by side in a section of the program: those never reached, too.
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
/// Where only launchers come.
#define MUSTER_LAUNCH_PROBE(text) MUSTER_PROBE_IN("muster_launch_probes", text)
/// Where only those come who meet through etcd.
#define MUSTER_ETCD_PROBE(text) MUSTER_PROBE_IN("muster_etcd_probes", text)
