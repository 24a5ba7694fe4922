// Delays between attempts: longer each time, and different in each process.
#pragma once

#include <algorithm>

#include "base/prng.h"
#include "base/time.h"

namespace muster {

/// Exponential with jitter: each delay is uniform in [1/2, 3/2] of a base that grows by half each
/// time.
class Backoff {
 public:
  Backoff(Duration first, Duration longest, uint64_t seed)
      : base_(first), longest_(longest), prng_(seed) {}

  Duration Next() {
    const auto base = static_cast<uint64_t>(base_.count());
    const Duration delay(static_cast<int64_t>(base / 2 + prng_.Below(base + 1)));
    base_ = std::min<Duration>(base_ * 3 / 2, longest_);
    return delay;
  }

 private:
  Duration base_;
  const Duration longest_;
  Prng prng_;
};

}  // namespace muster
