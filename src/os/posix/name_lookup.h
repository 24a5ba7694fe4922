// Waiting for a look-up that runs on a thread of its own, since nothing can stop it.
#pragma once

#include <algorithm>
#include <chrono>
#include <future>

#include "base/interruption.h"
#include "base/time.h"
#include "os/posix/posix_clock.h"

namespace muster {

/// Whether the answer came within `limit`. False, too, if the thread is interrupted.
template <typename T>
bool ComesWithin(const std::future<T>& answer, Duration limit) {
  const auto comes = [&](Duration time) {
    return answer.wait_for(time) == std::future_status::ready;
  };
  if (!CanBeInterrupted()) {
    if (limit == Duration::max()) return answer.wait(), true;
    return comes(limit);
  }
  PosixClock clock;
  Instant now = clock.Now();
  for (const Instant deadline = now + limit; now < deadline; now = clock.Now()) {
    if (CheckInterruption(now)) return false;
    if (comes(UntilNextCheck(deadline) - now)) return true;
  }
  return comes(0s);
}

}  // namespace muster
