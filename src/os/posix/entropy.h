// Unpredictable random numbers, from the kernel.
#pragma once

#include <cstdint>

namespace muster {

/// 64 random bits. Any thread. Blocks only in the first moments after the machine has booted.
uint64_t RandomFromKernel();

}  // namespace muster
