// The names of signals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// "SIGSEGV"; "<N/A>" for a number without a name.
std::string SignalName(int64_t signal);

/// The number of "SIGSEGV", also of the older names such as "SIGCLD".
std::optional<int> SignalNumber(std::string_view name);

}  // namespace muster
