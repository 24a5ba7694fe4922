// Unpredictable random numbers, from the kernel.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "base/assert.h"

namespace muster {

/// 64 random bits. Any thread. Blocks only shortly after the machine has booted.
inline uint64_t RandomFromKernel() {
  uint64_t number = 0;
  // So few bytes are returned in one call, unless a signal arrives before the kernel has any.
  while (getrandom(&number, sizeof number, 0) != sizeof number) MUSTER_ASSERT(errno == EINTR);
  return number;
}

}  // namespace muster
