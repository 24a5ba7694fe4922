// What holds the keys of a store, behind the public classes: requests go in, answers come out.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/core/request.h"

namespace muster {

/// Which fields mean something depends on the request.
struct Answer {
  int64_t number = 0;  ///< A sum, a count, a length; 1 for "yes" (CHECK, DELETE_KEY).
  std::string value{};
  std::vector<std::string> values{};
};

/// Any thread.
class StoreBackend {
 public:
  using Timeout = std::chrono::milliseconds;

  virtual ~StoreBackend() = default;

  /// Executes a request on the user's keys. GET, MULTI_GET, WAIT and BARRIER wait until `timeout`,
  /// and so does QUEUE_POP if its number is 1; kNotFound: the queue is empty. The errors are those
  /// of store/throw.h.
  virtual Result<Answer> Execute(const Request& request, Timeout timeout) = 0;

  /// For MULTI_GET, MULTI_SET and BARRIER: whether each is one request. The public class builds
  /// them from others if not.
  virtual bool Supports(Op op) const { return op != Op::kBarrier; }
};

}  // namespace muster
