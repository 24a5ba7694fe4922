#include "adapters/posix/process.h"

#include <unistd.h>

namespace muster {

uint32_t ProcessId() { return static_cast<uint32_t>(getpid()); }

}  // namespace muster
