// The seed of simulated runs in tests: from the commit, in make test. Every commit plays other
// games.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace muster::sim {

inline uint64_t Seed() {
  const char* given = std::getenv("MUSTER_SEED");
  return given == nullptr ? 8123 : std::strtoull(given, nullptr, 10);
}

}  // namespace muster::sim
