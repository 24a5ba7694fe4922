// Waiting on conditions instead of sleeping for a time that is always too short or too long.
#pragma once

#include <chrono>
#include <functional>

namespace muster::test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

/// Longer than anything takes on a busy machine under a sanitizer; only a failing test reaches it.
inline constexpr milliseconds kPatience{30'000};

/// Checks repeatedly until `condition` holds; false if it does not within `patience`.
bool EventuallyTrue(const std::function<bool()>& condition, milliseconds patience = kPatience);

/// How long something took: for lower bounds, and for generous upper bounds.
class Stopwatch {
 public:
  milliseconds Elapsed() const {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start_);
  }

 private:
  const Clock::time_point start_ = Clock::now();
};

}  // namespace muster::test
