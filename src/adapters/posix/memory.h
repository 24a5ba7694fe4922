// How much memory this process may count on.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

/// The machine's memory, or the least limit of the control groups (version 2) that this process is
/// in, where that is less.
uint64_t UsableMemory();

/// The least memory.max of the folder and of those above it; UINT64_MAX where there is none.
uint64_t LeastMemoryMax(std::string folder);

/// Large allocations are mapped one by one, and given back when they are freed: what the allocator
/// keeps for itself would count against nobody. For a process that serves others, once, at its
/// start.
void GiveMemoryBack();

}  // namespace muster
