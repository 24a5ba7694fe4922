// Whether a client takes its replies, and sends its requests, as fast as it must for the memory
// that they hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/time.h"

namespace muster {

class ClientPace {
 public:
  explicit ClientPace(Instant now);

  struct Limits {
    Duration span;      ///< A client that is too slow for so long is closed.
    uint64_t rate_min;  ///< Bytes a second.
    bool is_memory_scarce;
  };
  /// What the client holds, and what it has done since the beginning.
  struct Progress {
    bool has_replies;    ///< That it has not taken.
    size_t reply_bytes;  ///< Their size.
    bool has_request;    ///< It has begun one, and must go on with it.
    size_t held;         ///< By that request, in bytes.
    uint64_t taken;      ///< Bytes of replies.
    uint64_t received;   ///< Bytes of requests.
    uint64_t finished;   ///< Steps in which requests were executed.
  };
  /// Why the client must be closed; "" if it need not be. To be called again and again while the
  /// client holds something; `watched_since` is when that began.
  std::string FindSlowness(const Progress& progress, const Limits& limits, Instant now,
                           Instant watched_since);

 private:
  /// What a client had done at the beginning of a span of time.
  struct Mark {
    Instant since;
    uint64_t done = 0;

    /// Whether the client owed something for all of the span, and did less than `least`. A span
    /// that is over, and a moment in which it owes nothing, begin the next one.
    bool IsBehind(bool in_debt, uint64_t now_done, uint64_t least, Duration span, Instant now,
                  Instant watched_since);
  };

  std::array<Mark, 4> marks_;  // of the rates, in the order in which they are looked at
  Mark finishing_;             // of requests
};

}  // namespace muster
