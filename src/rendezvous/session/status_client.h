// Requests the status of runs from a server. Blocks, within its deadlines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "os/ports/dialer.h"
#include "rendezvous/core/run_report.h"

namespace muster {

class StatusClient {
 public:
  /// kUnavailable, kTimeout: no answer. kProtocol: a server without a coordinator.
  static Result<StatusClient> Connect(Dialer& dialer, const Endpoint& server, Instant deadline);

  /// Returns one run with its nodes, or nothing if there is no such run; with an empty id all runs,
  /// without nodes.
  Result<std::vector<RunReport>> Request(const std::string& run_id, Instant deadline);

 private:
  explicit StatusClient(std::unique_ptr<BlockingStream> stream) : stream_(std::move(stream)) {}
  /// Requests the runs after the last received one; returns whether there are more.
  Result<bool> RequestMore(const std::string& run_id, std::vector<RunReport>& runs,
                           Instant deadline);
  /// The bytes of the next message.
  Result<std::string> NextFrame(Instant deadline);
  Status ReceiveMore(Instant deadline);

  std::unique_ptr<BlockingStream> stream_;
  std::string input_;
};

}  // namespace muster
