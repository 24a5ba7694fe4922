// Where values become exceptions: the public face's half of style rule 12.
#pragma once

#include <utility>

#include "base/result.h"

namespace muster {

/// Throws the public class that stands for the error's code.
[[noreturn]] void Throw(const Error& error);

template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result) Throw(result.error());
  return std::move(*result);
}

inline void OkOrThrow(const Status& status) {
  if (!status) Throw(status.error());
}

}  // namespace muster
