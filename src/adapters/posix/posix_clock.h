// The system's monotonic clock behind the Clock port.
#pragma once

#include "ports/clock.h"

namespace muster {

class PosixClock final : public Clock {
 public:
  Instant Now() const override;
  WallTime Wall() const override;
  /// Returns early if the caller wishes to end (base/interruption.h).
  void SleepUntil(Instant when) override;
};

}  // namespace muster
