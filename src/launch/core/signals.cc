#include "launch/core/signals.h"

#include <csignal>
#include <cstring>

#include "base/text.h"

namespace muster {

std::string SignalName(int64_t signal) {
  if (signal == SIGIO) return "SIGIO";  // "SIGPOLL" for the C library
  // The C library reserves some of these, and returns at run time which are left.
  if (signal == SIGRTMIN) return "SIGRTMIN";
  if (signal == SIGRTMAX) return "SIGRTMAX";
  const bool is_known = signal > 0 && signal <= SIGSYS;
  return is_known ? Concat("SIG", sigabbrev_np(static_cast<int>(signal))) : "<N/A>";
}

std::optional<int> SignalNumber(std::string_view name) {
  if (name == "SIGIOT") return SIGABRT;
  if (name == "SIGCLD") return SIGCHLD;
  if (name == "SIGPOLL") return SIGIO;
  for (int number = 1; number <= SIGSYS; ++number) {
    if (SignalName(number) == name) return number;
  }
  return std::nullopt;
}

}  // namespace muster
