// The ports of a process, connected to the simulated network.
#pragma once

#include <functional>
#include <memory>

#include "os/ports/dialer.h"
#include "os/ports/transport.h"
#include "sim/network.h"

namespace muster::sim {

class SimProcess;

/// Thrown by an endless wait in a dead process: nothing else could end it.
struct ProcessIsDead {};

class SimLoop;

/// `loop`: a loop whose thread may be late, if any.
std::unique_ptr<Stream> MakeStream(std::shared_ptr<Socket> socket, const SimLoop* loop = nullptr);

class SimConnector final : public Connector {
 public:
  explicit SimConnector(SimProcess& process) : process_(process) {}
  std::unique_ptr<Attempt> Connect(const Endpoint& to, const ConnectOptions& options,
                                   std::function<void(Result<StreamPtr>)> done) override;

 private:
  SimProcess& process_;
};

class SimDialer final : public Dialer {
 public:
  explicit SimDialer(SimProcess& process) : process_(process) {}
  Result<std::unique_ptr<BlockingStream>> Dial(const Endpoint& to, Instant deadline) override;

 private:
  SimProcess& process_;
};

}  // namespace muster::sim
