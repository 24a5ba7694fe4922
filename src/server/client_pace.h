// Checks whether a client reads its replies and sends its requests fast enough for the memory that
// they hold.
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

  /// What the client holds now, and what it has done since it connected.
  struct Progress {
    bool has_replies;    ///< It has replies that it has not read.
    size_t reply_bytes;  ///< Their size.
    bool has_request;    ///< It has begun a request and must continue it.
    size_t held;         ///< Bytes held by that request.
    uint64_t taken;      ///< Bytes of replies that it has read.
    uint64_t received;   ///< Bytes of requests that it has sent.
    uint64_t finished;   ///< Steps in which requests were executed.
  };
  /// Why the client must be closed, as too slow for `span`; "" if it need not be. To be called
  /// repeatedly while the client holds something; `watched_since` is when these calls began.
  std::string FindSlowness(const Progress& progress, Duration span, bool is_memory_scarce,
                           Instant now, Instant watched_since);

 private:
  /// What a client had done at the beginning of a span of time.
  struct Mark {
    Instant since;
    uint64_t done = 0;

    /// Whether the client was in debt during the whole span, and did less than `least`. The end of
    /// a span, and a moment without debt, begin the next span.
    bool IsBehind(bool in_debt, uint64_t now_done, uint64_t least, Duration span, Instant now,
                  Instant watched_since);
  };

  std::array<Mark, 4> marks_;  // of the rates, in the order in which they are checked
  Mark finishing_;             // of requests
};

}  // namespace muster
