// A node that behaves like PyTorch's: it checks once a second, trusts the wall clocks of others,
// retries lost writes at once, and sends none of muster's additions.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/operations.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/state.h"
#include "sim/process.h"

namespace muster::sim {

class TorchNode final : public RendezvousHandler {
 public:
  TorchNode(const RendezvousSettings& settings, std::shared_ptr<Store> store,
            std::unique_ptr<RendezvousBackend> backend, Node self, SimProcess& process);
  ~TorchNode() override;

  std::string GetBackend() const override { return "c10d"; }
  std::string GetRunId() const override { return run_id_; }
  RendezvousInfo NextRendezvous() override;
  bool IsClosed() override;
  void SetClosed(std::string_view reason) override;
  int64_t NumNodesWaiting() override;
  bool Shutdown() override;

 private:
  enum class Operation { kJoin, kExit, kClose, kKeepAlive };

  /// nullopt: there was nothing to write. Otherwise whether the write was stored.
  std::optional<bool> Sync();
  void Purge();
  void Run(Operation operation, Instant deadline);
  Action Decide(Operation operation, Instant deadline) const;
  Action DecideJoin(Instant deadline) const;
  void Perform(Action action);
  bool HeartbeatDue() const;

  SimProcess& process_;
  const std::string run_id_;
  const RunSettings rules_;
  const std::shared_ptr<Store> store_;
  const std::unique_ptr<RendezvousBackend> backend_;
  const Node self_;
  RendezvousState state_;
  std::any token_;
  bool dirty_ = false;
  std::optional<Instant> synced_at_;
  std::unique_ptr<Monitor> mutex_;
  std::unique_ptr<Timer> heartbeats_;
  std::unique_ptr<ReservedPort> port_;
};

}  // namespace muster::sim
