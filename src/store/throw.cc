#include "store/throw.h"

#include <stdexcept>

#include "base/interruption.h"
#include "base/text.h"
#include "muster/error.h"
#include "os/posix/posix_clock.h"

namespace muster {

void Throw(const Error& error) {
  switch (error.code) {
    case Code::kTimeout:
      throw StoreTimeoutError(error.message);
    case Code::kUnavailable:
    case Code::kClosed:
    case Code::kConflict:
      throw NetworkError(error.message);
    case Code::kInvalid:
      throw std::invalid_argument(error.message);
    case Code::kOutOfRange:
      throw std::out_of_range(error.message);
    case Code::kUnsupported:
      throw NotImplementedError(error.message);
    case Code::kInterrupted:
      ThrowInterrupted(error.message);
    case Code::kNotFound:
    case Code::kProtocol:
      throw StoreError(error.message);
  }
  throw StoreError(error.message);
}

void ThrowInterrupted(const std::string& message) {
  CompleteInterruption();
  throw InterruptedError(message);
}

void RequireValueForEach(const std::vector<std::string>& keys,
                         const std::vector<std::string>& values) {
  if (keys.size() == values.size()) return;
  throw std::invalid_argument(Concat("multiSet keys and values vectors must be of same size: ",
                                     keys.size(), " keys, ", values.size(), " values"));
}

std::unique_lock<std::mutex> LockUnlessInterrupted(std::mutex& mutex, std::string_view what) {
  if (!CanBeInterrupted()) return std::unique_lock(mutex);
  constexpr Duration kPause = 5ms;
  std::unique_lock lock(mutex, std::try_to_lock);
  PosixClock clock;
  const Instant began = clock.Now();
  while (!lock.owns_lock()) {
    clock.SleepUntil(clock.Now() + kPause);
    if (IsInterrupted()) {
      Throw(Interrupted(began, clock.Now(),
                        Concat("waiting for another thread's call on the same ", what)));
    }
    lock.try_lock();
  }
  return lock;
}

}  // namespace muster
