#include "support/eventually.h"

#include <algorithm>
#include <thread>

namespace muster::test {

bool EventuallyTrue(const std::function<bool()>& condition, milliseconds patience) {
  const Clock::time_point give_up = Clock::now() + patience;
  auto pause = std::chrono::microseconds(50);
  while (!condition()) {
    if (Clock::now() >= give_up) return false;
    // No test relies on this sleep: it only frees the cores for other threads.
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5'000));
  }
  return true;
}

}  // namespace muster::test
