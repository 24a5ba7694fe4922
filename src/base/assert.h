// MUSTER_ASSERT guards our own invariants and stays on in release builds: a machine that has lost
// its footing must stop, not hand out wrong ranks. Data from a peer, a user or the kernel gets an
// Error.
#pragma once

namespace muster {

/// Prints where and what to stderr and aborts. Any thread.
[[noreturn]] void AssertFailed(const char* file, int line, const char* condition);

}  // namespace muster

#define MUSTER_ASSERT(condition) \
  ((condition) ? void(0) : ::muster::AssertFailed(__FILE__, __LINE__, #condition))
