// The part of a store, behind the public classes, that holds its keys: it executes requests and
// returns answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/core/request.h"

namespace muster {

/// The request determines which fields have a meaning.
struct Answer {
  int64_t number = 0;  ///< A sum, a count, a length; 1 for "yes" (CHECK, DELETE_KEY).
  std::string value{};
  std::vector<std::string> values{};
};

/// "keys: a, b": for messages.
std::string NamesOf(std::span<const std::string_view> keys);

/// Any thread.
class StoreBackend {
 public:
  using Timeout = std::chrono::milliseconds;

  virtual ~StoreBackend() = default;

  /// Executes a request on the user's keys. GET, MULTI_GET, WAIT and BARRIER wait until `timeout`,
  /// and so does QUEUE_POP if its number is 1. kNotFound: the queue is empty. The errors are those
  /// of store/throw.h.
  virtual Result<Answer> Execute(const Request& request, Timeout timeout) = 0;

  /// Whether MULTI_GET, MULTI_SET or BARRIER is a single request. If not, the public class builds
  /// it from other requests.
  virtual bool Supports(Op op) const { return op != Op::kBarrier; }
};

}  // namespace muster
