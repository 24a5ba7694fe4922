// The names of signals.
#pragma once

#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace muster {

/// "SIGSEGV"; "<N/A>" for a number without a name.
inline std::string SignalName(int64_t signal) {
  if (signal == SIGIO) return "SIGIO";  // "SIGPOLL" for the C library
  // The C library reserves some of these, and returns at run time which are left.
  if (signal == SIGRTMIN) return "SIGRTMIN";
  if (signal == SIGRTMAX) return "SIGRTMAX";
  const bool is_known = signal > 0 && signal <= SIGSYS;
  return is_known ? Concat("SIG", sigabbrev_np(static_cast<int>(signal))) : "<N/A>";
}

/// The number of "SIGSEGV", also of the older names such as "SIGCLD".
inline std::optional<int> SignalNumber(std::string_view name) {
  if (name == "SIGIOT") return SIGABRT;
  if (name == "SIGCLD") return SIGCHLD;
  if (name == "SIGPOLL") return SIGIO;
  for (int number = 1; number <= SIGSYS; ++number) {
    if (SignalName(number) == name) return number;
  }
  return std::nullopt;
}

}  // namespace muster
