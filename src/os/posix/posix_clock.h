// The system's monotonic clock behind the Clock port: CLOCK_BOOTTIME, which goes on while the
// machine is suspended or its VM is paused. Others count that time, too: a lease that was not
// renewed meanwhile is over.
#pragma once

#include <condition_variable>
#include <mutex>

#include "os/ports/clock.h"

namespace muster {

/// What PosixClock reads. Any thread.
Instant BootTime();

class PosixClock final : public Clock {
 public:
  Instant Now() const override;
  WallTime Wall() const override;
  void SleepUntil(Instant when) override;
};

/// Waits until `wake` is notified, or until then; may return earlier, for example when the thread
/// is interrupted (base/interruption.h). The lock is also released to ask whether it is: the
/// function that is called may need it.
void WaitOn(std::condition_variable& wake, std::unique_lock<std::mutex>& lock, Instant until);

}  // namespace muster
