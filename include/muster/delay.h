// Delay: pauses, also of random length.
#pragma once

#include <chrono>

namespace muster {

/// Blocks for `time`; not at all if it is less than 10 ms.
void Delay(std::chrono::milliseconds time);

/// Blocks for a time drawn uniformly between the two, so that processes started together do not act
/// together. std::invalid_argument if `most` is below `least`.
void Delay(std::chrono::milliseconds least, std::chrono::milliseconds most);

}  // namespace muster
