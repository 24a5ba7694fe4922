#include "os/posix/posix_clock.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/interruption.h"

namespace muster {

namespace {

/// False: a signal ended the sleep early.
bool SleepOnce(const Clock& clock, Instant when) {
  const timespec until = ToTimespec(when.since_start);
  int failed = clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, nullptr);
  if (failed == 0 || failed == EINTR) return failed == 0;
  // Some libraries that shift a process's time refuse absolute times. Not sleeping at all would
  // make a busy loop of every wait.
  const Duration left = when - clock.Now();
  if (left <= 0s) return true;
  const timespec span = ToTimespec(left);
  failed = clock_nanosleep(CLOCK_BOOTTIME, 0, &span, nullptr);
  return failed != EINTR;
}

}  // namespace

timespec ToTimespec(Duration time) {
  return {.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
}

Instant BootTime() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return Instant{std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec)};
}

WallTime PosixClock::Wall() const {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return WallTime{std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count()};
}

void PosixClock::SleepUntil(Instant when) {
  bool by_signal = false;
  do {
    if (CanBeInterrupted() && CheckInterruption(Now(), by_signal)) return;
    const Instant until = UntilNextCheck(when);
    by_signal = !SleepOnce(*this, until);
    if (!by_signal && until == when) return;
  } while (Now() < when);
}

void WaitOn(std::condition_variable& wake, std::unique_lock<std::mutex>& lock, Instant until) {
  if (CanBeInterrupted()) {
    const Instant now = BootTime();
    if (IsCheckDue(now)) {
      lock.unlock();
      CheckInterruption(now);
      lock.lock();
      return;  // the awaited event may have happened
    }
    until = UntilNextCheck(until);
  }
  if (until == Instant::Never()) return wake.wait(lock);
  // Not with wait_until(): CLOCK_BOOTTIME also runs while the machine is suspended.
  constexpr Duration kLookMax = 1h;
  const Duration left = until - BootTime();
  if (left > 0s) wake.wait_for(lock, std::min(left, kLookMax));
}

}  // namespace muster
