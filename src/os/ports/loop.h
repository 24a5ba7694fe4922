// An event loop: one thread that owns what it serves. Other threads pass work to it with Post().
#pragma once

#include <functional>
#include <memory>

#include "base/time.h"

namespace muster {

/// Runs its callback on the loop unless it is destroyed earlier. Made and destroyed on the loop's
/// thread; the callback may destroy it.
class Timer {
 public:
  virtual ~Timer() = default;
};

class Loop {
 public:
  virtual ~Loop() = default;

  /// The loop's clock, read once per turn. Loop thread only.
  virtual Instant Now() const = 0;

  /// Whether the caller is on the loop's thread.
  virtual bool IsCurrent() const = 0;

  /// Runs `work` on the loop's thread, after earlier posted work. Any thread. Work posted to a loop
  /// that has ended is destroyed, and does not run.
  virtual void Post(std::function<void()> work) = 0;

  /// Calls `tick` every `period`, first after one period. Loop thread only. Time in which the
  /// machine is suspended does not count.
  virtual std::unique_ptr<Timer> Every(Duration period, std::function<void()> tick) = 0;

  /// Calls `work` once, after `delay`. Otherwise as Every().
  virtual std::unique_ptr<Timer> After(Duration delay, std::function<void()> work) = 0;

  /// Calls `ring` once, when Now() has reached `when`: time in which the machine is suspended does
  /// count. If the machine wakes up later than that, it is called immediately. Loop thread only.
  virtual std::unique_ptr<Timer> At(Instant when, std::function<void()> ring) = 0;
};

}  // namespace muster
