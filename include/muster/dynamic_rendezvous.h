// DynamicRendezvousHandler: nodes come and go; all of them agree through one cell of a backend.
//
// Lives in one rendezvous with PyTorch's handlers (tested: 2.13): same state, same keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

class System;

struct DynamicRendezvousOptions {
  std::string local_addr{};      ///< Empty: this machine's fully qualified name.
  RendezvousEventSink events{};  ///< Null: the process's sink.
};

/// What it cost to agree: the figures behind "why is this slow?".
struct RendezvousCost {
  int64_t reads = 0;   ///< Of the backend.
  int64_t writes = 0;  ///< Attempts.
  int64_t lost = 0;    ///< Those that somebody else was faster at.
};

class DynamicRendezvousHandler final : public RendezvousHandler {
 public:
  /// `store` is what NextRendezvous() hands out, under a prefix for each round.
  /// std::invalid_argument for settings or an address that cannot be meant, and for null.
  DynamicRendezvousHandler(RendezvousSettings settings, std::shared_ptr<Store> store,
                           std::unique_ptr<RendezvousBackend> backend,
                           DynamicRendezvousOptions options = {});
  /// In other surroundings than this process: a simulated one.
  DynamicRendezvousHandler(RendezvousSettings settings, std::shared_ptr<Store> store,
                           std::unique_ptr<RendezvousBackend> backend,
                           DynamicRendezvousOptions options, System& around);
  ~DynamicRendezvousHandler() override;

  const RendezvousSettings& settings() const;
  std::string node() const override;
  RendezvousCost cost() const;

  using RendezvousHandler::SetClosed;
  std::string GetBackend() const override;
  std::string GetRunId() const override;
  /// Whether its store is served here.
  bool IsHost() const override;
  /// Unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1.
  bool UseAgentStore() const override;
  RendezvousInfo NextRendezvous() override;
  bool IsClosed() override;
  void SetClosed(std::string_view reason) override;
  int64_t NumNodesWaiting() override;
  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override;
  /// Heartbeats end, and the others see at once that this node is gone.
  void Leave() override;
  /// Closes the rendezvous for everyone. False if that failed.
  bool Shutdown() override;
  WaitReport DescribeWait() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Settings and node from the parameters. The node's failures to get there are reported as events.
std::unique_ptr<DynamicRendezvousHandler> CreateDynamicHandler(
    std::shared_ptr<Store> store, std::unique_ptr<RendezvousBackend> backend,
    const RendezvousParameters& parameters);

}  // namespace muster
