// Time for code that may block, such as a client in its caller's thread. Loops have their own
// clock.
#pragma once

#include "base/time.h"

namespace muster {

class Clock {
 public:
  virtual ~Clock() = default;

  /// Any thread.
  virtual Instant Now() const = 0;

  /// The wall clock, for times that other machines read. Any thread.
  virtual WallTime Wall() const = 0;

  /// Blocks until `when`, or until the thread is interrupted (base/interruption.h): a caller in a
  /// loop calls IsInterrupted(). Any thread.
  virtual void SleepUntil(Instant when) = 0;
};

}  // namespace muster
