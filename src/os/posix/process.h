// Facts about this process.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

uint32_t ProcessId();

/// Sets the name that debuggers and `top` show for the calling thread. Linux keeps 15 bytes; the
/// rest is cut off at a whole character.
void NameThisThread(std::string_view name);

}  // namespace muster
