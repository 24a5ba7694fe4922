// This process and its threads.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/utf8.h"
#include "os/posix/system_error.h"

namespace muster {

inline uint32_t ProcessId() { return static_cast<uint32_t>(getpid()); }

/// Sets the name that debuggers and `top` show for the calling thread. Linux keeps 15 bytes; the
/// rest is cut off at a whole character.
inline void NameThisThread(std::string_view name) {
  constexpr size_t kMax = 15;
  if (name.size() > kMax) name = EndsOf(name, kMax, 0).first;
  pthread_setname_np(pthread_self(), std::string(name).c_str());
}

/// kUnavailable, "what: reason": no thread is left.
template <typename Body>
Result<std::thread> StartThread(std::string_view what, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {  // std::thread reports a failed start in this way
    return SystemError(what, error.code().value());
  }
}

}  // namespace muster
