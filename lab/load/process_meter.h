// The resources of a process: CPU time to the nanosecond, and memory. Also for a server that
// another process has started.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/time.h"

namespace muster::load {

/// Of all its threads, including ended ones, in user and kernel mode. kNotFound: there is no such
/// process.
Result<Duration> CpuTime(pid_t pid);

/// Of this process.
Duration OwnCpuTime();

struct Memory {
  uint64_t resident_bytes = 0;  ///< Now.
  uint64_t peak_bytes = 0;      ///< The maximum so far.
};
Result<Memory> MemoryOf(pid_t pid);

/// How many descriptors it has open.
Result<size_t> DescriptorsOf(pid_t pid);

}  // namespace muster::load
