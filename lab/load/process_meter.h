// What a process has used: CPU time to the nanosecond, and memory. For a server that another
// process may have started.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/time.h"

namespace muster::load {

/// Of all its threads, those that have ended too, in user and kernel mode. kNotFound: there is no
/// such process.
Result<Duration> CpuTime(pid_t pid);

/// Of this process.
Duration OwnCpuTime();

struct Memory {
  uint64_t resident_bytes = 0;  ///< Now.
  uint64_t peak_bytes = 0;      ///< The most it ever was.
};
Result<Memory> MemoryOf(pid_t pid);

/// How many it has open.
Result<size_t> DescriptorsOf(pid_t pid);

}  // namespace muster::load
