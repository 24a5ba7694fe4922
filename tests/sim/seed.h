// The seed of simulated runs in tests. In make test it comes from the commit, so every commit plays
// other runs.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace muster::sim {

inline uint64_t Seed() {
  const char* given = std::getenv("MUSTER_SEED");
  return given == nullptr ? 8123 : std::strtoull(given, nullptr, 10);
}

}  // namespace muster::sim
