#include "muster/delay.h"

#include "base/interruption.h"
#include "base/prng.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "os/posix/process.h"
#include "store/throw.h"

namespace muster {

void Delay(std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kWorthwhile(10);
  if (time < kWorthwhile) return;
  PosixClock clock;
  const Instant began = clock.Now();
  clock.SleepUntil(DeadlineAfter(began, time));
  if (IsInterrupted())
    Throw(Interrupted(began, clock.Now(), Concat("waiting for ", time.count(), " ms to pass")));
}

void Delay(std::chrono::milliseconds least, std::chrono::milliseconds most) {
  if (most < least) {
    throw Invalid("Delay between ", least.count(), " and ", most.count(),
                  " ms: the second is less");
  }
  const PosixClock clock;
  // Process id and time differ between processes that were started together.
  Prng prng(static_cast<uint64_t>(clock.Now().since_start.count()) ^
            (static_cast<uint64_t>(ProcessId()) << 32));
  const auto span = static_cast<uint64_t>((most - least).count()) + 1;
  Delay(least + std::chrono::milliseconds(static_cast<int64_t>(prng.Below(span))));
}

}  // namespace muster
