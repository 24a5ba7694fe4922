// MUSTER_ASSERT guards our own invariants and stays on in release builds: a machine whose state is
// wrong must stop, not assign wrong ranks. Data from a peer, a user or the kernel gets an Error.
#pragma once

namespace muster {

/// Prints the condition and its place to stderr and aborts. Any thread.
[[noreturn]] void AssertFailed(const char* file, int line, const char* condition);

}  // namespace muster

#define MUSTER_ASSERT(condition) \
  ((condition) ? void(0) : ::muster::AssertFailed(__FILE__, __LINE__, #condition))
