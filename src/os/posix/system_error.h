// The error of a system call that failed.
#pragma once

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/result.h"
#include "base/text.h"

namespace muster {

/// kUnavailable, "what: reason". `number` is the errno of the call.
inline Error SystemError(std::string_view what, int number = errno) {
  return {Code::kUnavailable, Concat(what, ": ", std::string_view(std::strerror(number)))};
}

}  // namespace muster
