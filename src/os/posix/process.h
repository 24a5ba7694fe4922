// Facts about this process.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

uint32_t ProcessId();

/// What debuggers and `top` call the calling thread. Linux keeps 15 bytes; whole characters of the
/// rest are cut off.
void NameThisThread(std::string_view name);

}  // namespace muster
