// Blocking TCP connections behind the Dialer port: poll(2) in the caller's thread, no loop, no
// hand-over.
#pragma once

#include <memory>

#include "ports/clock.h"
#include "ports/dialer.h"

namespace muster {

class PosixDialer final : public Dialer {
 public:
  explicit PosixDialer(Clock& clock) : clock_(clock) {}

  Result<std::unique_ptr<BlockingStream>> Dial(const Endpoint& to, Instant deadline) override;

 private:
  Clock& clock_;
};

}  // namespace muster
