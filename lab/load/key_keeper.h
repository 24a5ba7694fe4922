// Creates the keys of a run beforehand, counts its counters afterwards, and finally removes them.
// One blocking connection, many requests in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "load/dialect.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"

namespace muster::load {

class KeyKeeper {
 public:
  /// Connects. The key space outlives the keeper. kUnavailable, kTimeout: there is no such server.
  static Result<std::unique_ptr<KeyKeeper>> Open(const Endpoint& server, Protocol protocol,
                                                 const KeySpace& space);

  /// Stores every value and sets every counter to zero. All later requests see them.
  Status Create();
  /// The sum of all counters.
  Result<int64_t> CountCounters();
  Status Delete();

 private:
  KeyKeeper(Protocol protocol, const KeySpace& space) : protocol_(protocol), space_(space) {}

  /// Sends the chore for every key; returns the sum of the numbers in the replies.
  Result<int64_t> ForAll(Chore chore);
  /// Sends `request` and reads `replies` replies of that shape.
  Result<int64_t> Exchange(const std::string& request, ReplyShape shape, size_t replies);
  Result<std::string> Take(size_t bytes);
  Result<std::string> TakeLine();
  Status Fill();

  const Protocol protocol_;
  const KeySpace& space_;
  PosixClock clock_;
  PosixDialer dialer_{clock_};
  std::unique_ptr<BlockingStream> stream_;
  std::string input_;
};

}  // namespace muster::load
