// The error of a system call that failed.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "base/result.h"
#include "base/text.h"

namespace muster {

/// The reason of an errno, in words.
inline std::string_view ErrorText(int number) { return std::strerror(number); }

/// "what: reason". `number` is the errno of the call.
inline Error SystemError(std::string_view what, int number = errno,
                         Code code = Code::kUnavailable) {
  return MakeError(code, what, ": ", ErrorText(number));
}

/// Whether an errno is one of these.
inline bool IsOneOf(int number, std::initializer_list<int> numbers) {
  return std::ranges::find(numbers, number) != numbers.end();
}

}  // namespace muster
