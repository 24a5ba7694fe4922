// Facts about this process.
#pragma once

#include <cstdint>

namespace muster {

uint32_t ProcessId();

}  // namespace muster
