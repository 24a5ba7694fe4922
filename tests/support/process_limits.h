// The limits of a process.
#pragma once

#include <sys/resource.h>

namespace muster::test {

/// Raises this process's own limit as far as it may; returns how many descriptors it can have.
inline rlim_t RaiseDescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

/// Sanitizers keep freed memory for a while and shadow the rest: sizes under them mean little.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMemoryIsMeasurable = false;
#else
inline constexpr bool kMemoryIsMeasurable = true;
#endif

}  // namespace muster::test
