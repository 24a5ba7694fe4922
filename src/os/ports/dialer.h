// Byte streams for code that may block: a client waits for its reply in its caller's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"

namespace muster {

/// One connection. One thread at a time; every call is bounded by its deadline. Every call may
/// return kInterrupted: like kTimeout, but the caller has interrupted (base/interruption.h).
class BlockingStream {
 public:
  virtual ~BlockingStream() = default;

  /// Sends all of `bytes`. kTimeout (an unknown part was sent) or kUnavailable (connection lost).
  virtual Status Send(std::string_view bytes, Instant deadline) = 0;

  /// Waits for at least one byte and reads what is available, at most into.size(). kTimeout:
  /// nothing was read. kClosed: the peer closed the connection in an orderly way. kUnavailable: it
  /// failed.
  virtual Result<size_t> Receive(std::span<char> into, Instant deadline) = 0;
};

class Dialer {
 public:
  virtual ~Dialer() = default;

  /// One attempt at every address of `to`, IPv6 first. kUnavailable when there is no answer (yet):
  /// refused, reset, unresolvable; kTimeout when the deadline passed first; kInvalid when repeating
  /// cannot help; kInterrupted as above.
  virtual Result<std::unique_ptr<BlockingStream>> Dial(const Endpoint& to, Instant deadline) = 0;
};

}  // namespace muster
