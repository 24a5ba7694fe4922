// The system's monotonic clock behind the Clock port: CLOCK_BOOTTIME, which also runs while the
// machine is suspended or its VM is paused. Other machines count that time, too: a lease that was
// not renewed in it has expired.
#pragma once

#include <time.h>

#include <condition_variable>
#include <mutex>

#include "os/ports/clock.h"

namespace muster {

/// What PosixClock reads. Any thread.
Instant BootTime();

/// As system calls take it.
timespec ToTimespec(Duration time);

class PosixClock final : public Clock {
 public:
  Instant Now() const override;
  WallTime Wall() const override;
  void SleepUntil(Instant when) override;
};

/// Waits until `wake` is notified or `until` is reached; may return earlier, for example when the
/// thread is interrupted (base/interruption.h). The lock is also released for the check whether it
/// is interrupted: the called function may need the lock.
void WaitOn(std::condition_variable& wake, std::unique_lock<std::mutex>& lock, Instant until);

}  // namespace muster
