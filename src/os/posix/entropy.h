// Random bytes of the kernel: what nobody outside can predict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster {

/// Any thread. Blocks only in the first moments after the machine has booted.
void FillFromKernel(std::span<std::byte> out);

/// One number of 64 random bits. Any thread.
uint64_t RandomFromKernel();

}  // namespace muster
