// Time for those who may block: a blocking client in its caller's thread. Loops have their own.
#pragma once

#include "base/time.h"

namespace muster {

class Clock {
 public:
  virtual ~Clock() = default;

  /// Any thread.
  virtual Instant Now() const = 0;

  /// The wall clock, to be written down for others. Any thread.
  virtual WallTime Wall() const = 0;

  /// Blocks until `when`, or until the thread is interrupted (base/interruption.h): whoever sleeps
  /// in a loop looks whether it is. Any thread.
  virtual void SleepUntil(Instant when) = 0;
};

}  // namespace muster
