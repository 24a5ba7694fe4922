// The time from a SET to the waiter that it wakes, while others wait for other keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "load/histogram.h"

namespace muster::load {

struct WakeOptions {
  Endpoint server;
  std::vector<size_t> waiters;  ///< The numbers of other waiters to measure with.
  size_t wakes = 500;           ///< Measured in each pass at each number.
  size_t passes =
      3;  ///< Passes over all numbers, so that a disturbance does not affect one number alone.
  std::string tag = "0";  ///< Part of the keys.

  Status Validate() const;
};

struct WakePoint {
  size_t waiters = 0;
  Histogram latency;  ///< From before the SET is sent until the waiter has its answer.
};

/// One point for each number of waiters, in the given order. Blocks. kUnavailable, kTimeout,
/// kInvalid; kProtocol: the server woke another waiter, or none.
Result<std::vector<WakePoint>> MeasureWakes(const WakeOptions& options);

}  // namespace muster::load
