// Where log lines go. A component is given a sink; without one it writes nothing.
#pragma once

#include <functional>
#include <string_view>

namespace muster {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Called on any thread, with one line without its line end. Must not block for long.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

}  // namespace muster
