// A small deterministic generator: standard distributions differ between libraries, and a seed must
// replay the same run everywhere.
#pragma once

#include <cstdint>

#include "base/assert.h"

namespace muster {

/// SplitMix64: one addition and three mixing steps, passes BigCrush; any seed will do.
class Prng {
 public:
  explicit Prng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, bound), up to a bias below bound / 2^64.
  uint64_t Below(uint64_t bound) {
    MUSTER_ASSERT(bound > 0);
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace muster
