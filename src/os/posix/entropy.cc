#include "os/posix/entropy.h"

#include <sys/random.h>

#include <cerrno>

#include "base/assert.h"

namespace muster {

uint64_t RandomFromKernel() {
  uint64_t number = 0;
  // So few bytes come at once, unless a signal comes before the kernel has any.
  while (getrandom(&number, sizeof number, 0) != sizeof number) MUSTER_ASSERT(errno == EINTR);
  return number;
}

}  // namespace muster
