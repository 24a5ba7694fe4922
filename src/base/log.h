// Where log lines go. Whoever builds a component hands it a sink; without one nothing is written.
#pragma once

#include <functional>
#include <string_view>

namespace muster {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Called on any thread, one line without its end. Must not block for long.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

}  // namespace muster
