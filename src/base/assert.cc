#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace muster {

void AssertFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "muster: bug: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace muster
