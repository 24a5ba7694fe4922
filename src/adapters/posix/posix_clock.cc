#include "adapters/posix/posix_clock.h"

#include <time.h>

#include <cerrno>
#include <chrono>

namespace muster {

Instant PosixClock::Now() const {
  return Instant{std::chrono::steady_clock::now().time_since_epoch()};
}

WallTime PosixClock::Wall() const {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return WallTime{std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count()};
}

void PosixClock::SleepUntil(Instant when) {
  const auto count = when.since_start.count();
  const timespec until{.tv_sec = count / 1'000'000'000, .tv_nsec = count % 1'000'000'000};
  int failed = EINTR;
  while (failed == EINTR) failed = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  if (failed == 0) return;
  // Some libraries that shift a process's time refuse absolute times. Not sleeping at all would
  // make a busy loop of every wait.
  for (Duration left = when - Now(); left > 0s; left = when - Now()) {
    const timespec span{.tv_sec = left.count() / 1'000'000'000,
                        .tv_nsec = left.count() % 1'000'000'000};
    failed = clock_nanosleep(CLOCK_MONOTONIC, 0, &span, nullptr);
    if (failed != 0 && failed != EINTR) return;
  }
}

}  // namespace muster
