// Errors as exceptions, for the public classes.
#pragma once

#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"

namespace muster {

/// Throws the public class for the error's code.
[[noreturn]] void Throw(const Error& error);

/// Throws InterruptedError and completes the interruption. No other function throws it.
[[noreturn]] void ThrowInterrupted(const std::string& message);

/// To be thrown: what is wrong with an argument, and what is allowed.
std::invalid_argument Invalid(const auto&... message) {
  return std::invalid_argument(Concat(message...));
}

/// The lock of a store that serves one call at a time (`what`: "TcpStore"). InterruptedError if the
/// caller interrupts while another thread holds the lock.
std::unique_lock<std::mutex> LockUnlessInterrupted(std::mutex& mutex, std::string_view what);

/// Throws std::invalid_argument for MultiSet.
void RequireValueForEach(const std::vector<std::string>& keys,
                         const std::vector<std::string>& values);

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result) Throw(result.error());
  return std::move(*result);
}

}  // namespace muster
