// The system's monotonic clock behind the Clock port: CLOCK_BOOTTIME, which also runs while the
// machine is suspended or its VM is paused. Other machines count that time, too: a lease that was
// not renewed in it has expired.
#pragma once

#include <time.h>

#include <condition_variable>
#include <mutex>

#include "os/ports/clock.h"

namespace muster {

/// The present time of PosixClock. Any thread.
Instant BootTime();

/// Converts to the format of system calls.
timespec ToTimespec(Duration time);

class PosixClock final : public Clock {
 public:
  Instant Now() const override { return BootTime(); }
  WallTime Wall() const override;
  void SleepUntil(Instant when) override;
};

/// Waits until `wake` is notified or `until` is reached; may return earlier, for example when the
/// thread is interrupted (base/interruption.h). The check for an interruption runs without the
/// lock, because the function that it calls may need the lock.
void WaitOn(std::condition_variable& wake, std::unique_lock<std::mutex>& lock, Instant until);

}  // namespace muster
