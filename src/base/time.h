// Time for machines: durations, and instants on a clock that the caller reads.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace muster {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;  // NOLINT: 30s reads better than seconds(30), everywhere.

/// A point on the local monotonic clock. There is deliberately no Now(): the loop (or the Clock
/// port) reads the clock and hands the value in, so that a machine can be replayed. Never leaves
/// its process.
struct Instant {
  Duration since_start{};

  static constexpr Instant Never() { return {Duration::max()}; }

  friend constexpr Instant operator+(Instant t, Duration d) {
    // Saturates, so that "now + no limit" stays "never" instead of wrapping into the past.
    return d > Duration::max() - t.since_start ? Never() : Instant{t.since_start + d};
  }
  friend constexpr Duration operator-(Instant a, Instant b) {
    return a.since_start - b.since_start;
  }
  auto operator<=>(const Instant&) const = default;
};

/// Microseconds since 1970 on some machine's wall clock, for other readers. Times of other machines
/// are stored, and compared with each other, but never with a local clock.
enum class WallTime : int64_t {};

constexpr WallTime operator+(WallTime t, Duration d) {
  return WallTime{static_cast<int64_t>(t) +
                  std::chrono::duration_cast<std::chrono::microseconds>(d).count()};
}

/// A time from a public class, which may be longer than a Duration.
constexpr Instant After(Instant now, std::chrono::milliseconds time) {
  constexpr auto kLongest = std::chrono::duration_cast<std::chrono::milliseconds>(Duration::max());
  return time >= kLongest ? Instant::Never() : now + time;
}

/// Timeouts of the public classes: zero or less means "no limit", on every store.
constexpr Instant DeadlineAfter(Instant now, std::chrono::milliseconds timeout) {
  return timeout.count() <= 0 ? Instant::Never() : After(now, timeout);
}

/// For messages.
constexpr int64_t Milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace muster
