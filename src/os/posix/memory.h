// How much memory this process can use.
#pragma once

#include <cstdint>
#include <string>

#include "base/memory_account.h"
#include "os/posix/owned_fd.h"

namespace muster {

/// The machine's memory, or the lowest limit of the control groups (version 2) of this process, if
/// that is less.
uint64_t UsableMemory();

/// The least memory.max of the folder and its parents; UINT64_MAX if there is none.
uint64_t LeastMemoryMax(std::string folder);

/// Large allocations are mapped one by one, and returned to the system when they are freed: no
/// client is charged for memory that the allocator keeps. A server process calls this once, at its
/// start.
void GiveMemoryBack();
/// Whether GiveMemoryBack() was called: the process's memory belongs to its clients.
bool GivesMemoryBack();
/// Makes the allocator return all whole pages that it keeps.
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

/// Memory that is reserved for the moment when operator new fails. It is then released, so that
/// current operations succeed, and the limit of the account is lowered to the used memory plus a
/// quarter of the reserve. So requests are refused before an allocation fails, until the reserve
/// can be allocated again. Takes address space, but no memory.
///
/// One for each process: a second one has no effect. A handler that was installed earlier is called
/// next.
class MemoryReserve {
 public:
  static constexpr size_t kBytes = 64 << 20;

  /// The account outlives it.
  explicit MemoryReserve(MemoryAccount& account);
  ~MemoryReserve();
  MemoryReserve(MemoryReserve&&) = delete;

  /// Returns whether the reserve was released since the last call. Allocates it again if there is
  /// room; call it every second or so. Any thread.
  bool Refill();
  /// Whether Refill() has nothing to do.
  bool is_full() const;

 private:
  bool is_the_one_ = false;
};

}  // namespace muster
