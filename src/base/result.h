// Result<T>: a value, or an Error whose code says what the caller can do next. Expected failures
// are values everywhere inside muster; only the public classes turn them into exceptions.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/assert.h"

namespace muster {

/// A new code needs a caller that acts on it.
enum class Code {
  kUnavailable,  ///< Nothing happened, repeat later (or elsewhere).
  kTimeout,      ///< It may or may not have happened: check.
  kConflict,     ///< Another writer was faster: read, decide again.
  kClosed,       ///< It is over, stop.
  kNotFound,     ///< A normal answer: there is none.
  kInvalid,      ///< Fix the call.
  kOutOfRange,   ///< The number does not fit: fix the value.
  kProtocol,     ///< The peer (or the file) breaks the protocol: drop it.
  kUnsupported,  ///< This kind of store, or this peer, cannot do it.
  kInterrupted,  ///< The caller interrupts: clean up and return.
};

/// `message`: the peer, what came, what is allowed: "node-3: key of 9 GiB, limit 64 MiB".
struct Error {
  Code code;
  std::string message;
};

struct Unit {
  bool operator==(const Unit&) const = default;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return MustHaveValue(), *std::get_if<0>(&state_); }
  const T& value() const& { return MustHaveValue(), *std::get_if<0>(&state_); }
  T&& value() && { return MustHaveValue(), std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return MustHaveError(), *std::get_if<1>(&state_); }
  Error&& error() && { return MustHaveError(), std::move(*std::get_if<1>(&state_)); }

 private:
  void MustHaveValue() const { MUSTER_ASSERT(has_value()); }
  void MustHaveError() const { MUSTER_ASSERT(!has_value()); }

  std::variant<T, Error> state_;
};

using Status = Result<Unit>;
inline Status Ok() { return Unit{}; }

}  // namespace muster

#define MUSTER_CONCAT_(a, b) a##b
#define MUSTER_CONCAT(a, b) MUSTER_CONCAT_(a, b)

/// MUSTER_TRY(declaration, expression): returns the error, or gives the value a name.
#define MUSTER_TRY(declaration, ...)                                \
  auto MUSTER_CONCAT(muster_try_, __LINE__) = (__VA_ARGS__);        \
  if (!MUSTER_CONCAT(muster_try_, __LINE__))                        \
    return std::move(MUSTER_CONCAT(muster_try_, __LINE__)).error(); \
  declaration = std::move(MUSTER_CONCAT(muster_try_, __LINE__)).value()

/// The same for a Status, which has no value worth a name.
#define MUSTER_CHECK_OK(...)                                  \
  do {                                                        \
    if (auto muster_status_ = (__VA_ARGS__); !muster_status_) \
      return std::move(muster_status_).error();               \
  } while (false)
