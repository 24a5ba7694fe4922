#include "os/posix/entropy.h"

#include <sys/random.h>

#include <cerrno>

#include "base/assert.h"

namespace muster {

void FillFromKernel(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    MUSTER_ASSERT(got > 0);  // Linux has it since 3.17
    out = out.subspan(static_cast<size_t>(got));
  }
}

uint64_t RandomFromKernel() {
  uint64_t number = 0;
  FillFromKernel(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace muster
