// The system's monotonic clock behind the Clock port: CLOCK_BOOTTIME, which goes on while the
// machine is suspended or its VM is paused. Others count that time, too: a lease that was not
// renewed meanwhile is over.
#pragma once

#include "os/ports/clock.h"

namespace muster {

/// What PosixClock reads. Any thread.
Instant BootTime();

class PosixClock final : public Clock {
 public:
  Instant Now() const override;
  WallTime Wall() const override;
  /// Returns early if the caller wishes to end (base/interruption.h).
  void SleepUntil(Instant when) override;
};

}  // namespace muster
