// How much memory this process may count on.
#pragma once

#include <cstdint>
#include <string>

#include "base/memory_account.h"
#include "os/posix/owned_fd.h"

namespace muster {

/// The machine's memory, or the least limit of the control groups (version 2) that this process is
/// in, where that is less.
uint64_t UsableMemory();

/// The least memory.max of the folder and of those above it; UINT64_MAX where there is none.
uint64_t LeastMemoryMax(std::string folder);

/// Large allocations are mapped one by one, and given back when they are freed: what the allocator
/// keeps for itself would count against no client. For a process that serves others, once, at its
/// start.
void GiveMemoryBack();
/// Whether this process does: its memory is its clients'.
bool GivesMemoryBack();
/// Has the allocator return all whole pages that it keeps.
void TrimMemory();

/// How much memory of its own this process has, without files; 0 if that is unknown. Any
/// thread; a microsecond or two.
class ResidentMemory {
 public:
  ResidentMemory();
  uint64_t Read() const;

 private:
  const OwnedFd statm_;
};

/// Memory that is kept back for the moment when operator new has none left. It is released then, so
/// that whatever is under way ends well, and the limit of the account is lowered to what is used
/// and a quarter of this, until the reserve can be kept again: requests are refused before they
/// need what is not there. Costs address space, no memory.
///
/// One for each process: a second one has no effect. A handler that was there before comes next.
class MemoryReserve {
 public:
  static constexpr size_t kBytes = 64 << 20;

  /// The account outlives it.
  explicit MemoryReserve(MemoryAccount& account);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  /// True: it was released since the last call. Keeps it back again if there is room; call it every
  /// second or so. Any thread.
  bool Refill();
  /// Whether there is nothing that Refill() would do.
  bool is_full() const;

 private:
  const bool is_the_one_;
};

}  // namespace muster
