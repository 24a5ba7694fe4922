// The checks of a fuzzer. A check that fails ends the process; libFuzzer then keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text.h"

namespace muster::fuzz {

[[noreturn]] inline void Fail(const char* where, int line, const char* what,
                              const std::string& details) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n%s\n", where, line, what, details.c_str());
  std::abort();
}

/// FUZZ_CHECK(condition, pieces of text with details...)
#define FUZZ_CHECK(condition, ...) \
  ((condition)                     \
       ? void(0)                   \
       : ::muster::fuzz::Fail(__FILE__, __LINE__, #condition, ::muster::Concat(__VA_ARGS__)))

/// A message about any input fits one line of a log and can be shown on any terminal.
inline void CheckMessage(std::string_view message) {
  constexpr size_t kMessageBytesMax = 2048;
  FUZZ_CHECK(!message.empty());
  FUZZ_CHECK(message.size() <= kMessageBytesMax, message.size(), " bytes");
  FUZZ_CHECK(Printable(message, message.size()) == message, Printable(message, message.size()));
}

}  // namespace muster::fuzz
