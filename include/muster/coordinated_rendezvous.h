// CoordinatedRendezvousHandler, the backend "muster": a server runs the rendezvous for all nodes
// and tells each of them what concerns it, at once.
//
// Every muster::StoreServer (and `muster serve`) hosts it, beside the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

class System;

struct CoordinatedRendezvousOptions {
  std::string host = "localhost";  ///< Of the server.
  uint16_t port = 29400;
  /// Whether this process serves. By default: if `host` is this machine and nobody serves there.
  std::optional<bool> is_host{};
  std::string run_id;
  std::string local_addr{};  ///< Under which others reach this machine; empty: where the server
                             ///< sees it come from.

  // All nodes of a run must give the same of these.
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  std::chrono::milliseconds last_call{30'000};  ///< From reaching min_nodes to closing the doors.
  std::chrono::milliseconds keep_alive_interval{1'000};
  int64_t keep_alive_max_attempt = 3;    ///< A node silent for so many intervals is taken for dead.
  std::chrono::milliseconds grace{300};  ///< For a node whose connection broke to come back.
  /// Who gets which rank: "natural" (by address, node2 before node10), "text" (as PyTorch),
  /// "stable" (who was in the last round keeps its rank where possible), "label".
  std::string rank_policy = "natural";

  std::string label{};                               ///< For the policy "label": a rack, a switch.
  std::chrono::milliseconds join_timeout{600'000};   ///< One NextRendezvous().
  std::chrono::milliseconds close_timeout{30'000};   ///< SetClosed() and Leave().
  RendezvousEventSink events{};                      ///< Null: the process's sink.
  std::function<void(std::string_view line)> log{};  ///< What people should know; null: stderr.

  /// From parameters and their options is_host, join_timeout, last_call_timeout, close_timeout,
  /// keep_alive_interval, grace (seconds, also fractions), keep_alive_max_attempt, rank_policy and
  /// label. std::invalid_argument says what is wrong.
  static CoordinatedRendezvousOptions From(const RendezvousParameters& parameters);
  void Validate() const;
};

class CoordinatedRendezvousHandler final : public RendezvousHandler {
 public:
  /// Serves, where that is decided; connects later, and goes on trying until a call's time is over.
  /// RendezvousConnectionError if it is told to serve and cannot.
  explicit CoordinatedRendezvousHandler(CoordinatedRendezvousOptions options);
  /// In other surroundings than this process: a simulated one. It cannot serve.
  CoordinatedRendezvousHandler(CoordinatedRendezvousOptions options, System& around);
  ~CoordinatedRendezvousHandler() override;

  /// Without its address before the first contact, unless `local_addr` says it.
  std::string node() const override;

  using RendezvousHandler::SetClosed;
  std::string GetBackend() const override { return "muster"; }
  std::string GetRunId() const override;
  bool IsHost() const override;
  /// Unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1.
  bool UseAgentStore() const override;
  /// Returns the moment the round is complete. On a server without a coordinator (PyTorch's), this
  /// and everything else is done through the c10d backend.
  RendezvousInfo NextRendezvous() override;
  /// These two cost no round trip: the server says so when it changes. Of many waiting nodes it
  /// does so each time they have doubled: above 0 the number is a lower bound.
  bool IsClosed() override;
  int64_t NumNodesWaiting() override;
  void SetClosed(std::string_view reason) override;
  /// Any thread.
  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override;
  bool StopWaiting() override;
  void Leave() override;
  bool Shutdown() override;
  WaitReport DescribeWait() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What the registry makes for "muster".
RendezvousHandlerPtr CreateCoordinatedHandler(const RendezvousParameters& parameters);

}  // namespace muster
