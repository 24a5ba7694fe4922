// Blocking TCP connections behind the Dialer port: poll(2) in the caller's thread, without a loop
// or another thread.
#pragma once

#include <sys/socket.h>

#include "os/ports/clock.h"
#include "os/ports/dialer.h"

namespace muster {

/// Connects to the first of `addresses` that answers. Each gets its share of the remaining time, so
/// that an address that drops all packets does not hide the next one. Codes as for Dial().
Result<std::unique_ptr<BlockingStream>> ConnectToAny(std::span<const sockaddr_storage> addresses,
                                                     Clock& clock, Instant deadline);

class PosixDialer final : public Dialer {
 public:
  explicit PosixDialer(Clock& clock) : clock_(clock) {}

  Result<std::unique_ptr<BlockingStream>> Dial(const Endpoint& to, Instant deadline) override;

 private:
  Clock& clock_;
};

}  // namespace muster
