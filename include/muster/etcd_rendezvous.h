// EtcdRendezvousHandler, the backend "etcd": the nodes meet in a cluster of etcd (v3), and one of
// them leads. The job survives the loss of any machine, also of that one.
//
// docs/internals/etcd.md describes the keys.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "muster/etcd.h"
#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

class Etcd;
class Loop;
class System;
template <typename T>
class Result;

struct EtcdRendezvousOptions {
  static constexpr std::string_view kDefaultPrefix = "/muster";

  EtcdOptions etcd;
  std::string run_id;
  /// Under which others reach this machine. Empty: the address of its connections to etcd, or, if
  /// etcd is on this machine, its name.
  std::string local_addr{};

  // All nodes of a run must give the same of these.
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  std::chrono::milliseconds last_call{
      30'000};  ///< From reaching min_nodes to completing the round.
  /// The same when a round re-forms after it has lost a member; without a loss, nothing is waited
  /// for. At most last_call.
  std::chrono::milliseconds reform_timeout{500};
  /// Nodes that come within this time after a round has re-formed wait in silence: its members are
  /// notified when as many wait as are missing, or when it is over. 0: of each at once.
  std::chrono::milliseconds rejoin_window{10'000};
  int64_t expected = 0;  ///< A first round with so many nodes has no last call; 0: unknown.
  /// A node that is silent for so many intervals is declared lost. That is its lease, in whole
  /// seconds, at least 2. The default outlasts a change of etcd's own leader, also of one that is
  /// cut off, which takes up to 5 s.
  std::chrono::milliseconds keep_alive_interval{1'000};
  int64_t keep_alive_max_attempt = 6;
  /// "natural", "text", "stable" or "label": see CoordinatedRendezvousOptions.
  std::string rank_policy = "natural";

  std::string label{};                              ///< For the policy "label": a rack, a switch.
  std::chrono::milliseconds join_timeout{600'000};  ///< One NextRendezvous().
  std::chrono::milliseconds close_timeout{30'000};  ///< SetClosed() and Leave().
  RendezvousEventSink events{};                     ///< Null: the process's sink.
  /// What GetBackend() returns: "etcd", or "etcd-v2", the backend's other name.
  std::string backend = "etcd";

  /// From parameters and the options of EtcdOptions, and join_timeout (or timeout, its name in
  /// torchrun's etcd), last_call_timeout, reform_timeout, rejoin_window, close_timeout,
  /// keep_alive_interval (seconds, also fractions), expected, keep_alive_max_attempt, rank_policy
  /// and label. std::invalid_argument names the option.
  static EtcdRendezvousOptions From(const RendezvousParameters& parameters);
  void Validate() const;
};

class EtcdRendezvousHandler final : public RendezvousHandler {
 public:
  /// Connects later, and retries until a call's timeout. In the component muster::etcd.
  explicit EtcdRendezvousHandler(EtcdRendezvousOptions options);
  /// With other clients and another system than this process, for simulations.
  using Connector = std::function<Result<std::shared_ptr<Etcd>>(Loop&)>;
  EtcdRendezvousHandler(EtcdRendezvousOptions options, Connector connect, System& around);
  ~EtcdRendezvousHandler() override;

  std::string node() const override;

  using RendezvousHandler::SetClosed;
  std::string GetBackend() const override;
  std::string GetRunId() const override;
  /// Unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1.
  bool UseAgentStore() const override;
  bool AllowsConcurrentCalls() const override;
  /// Returns as soon as the round is complete. RendezvousConnectionError: etcd is out of reach for
  /// all of join_timeout, or refuses access; RendezvousStateError: a key of the run holds a value
  /// that cannot be read.
  RendezvousInfo NextRendezvous() override;
  /// These two cost no round trip: the leader reports changes.
  bool IsClosed() override;
  int64_t NumNodesWaiting() override;
  void SetClosed(std::string_view reason) override;
  /// Any thread. Reports the loss of the lease also while etcd is out of reach.
  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override;
  bool StopWaiting() override;
  void Leave() override;
  bool Shutdown() override;
  WaitReport DescribeWait() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What the registry makes for "etcd" and "etcd-v2", once EnableEtcd() was called. In the component
/// muster::etcd.
RendezvousHandlerPtr CreateEtcdHandler(const RendezvousParameters& parameters);

/// Registers the etcd backends of this process, which the registry refuses to make otherwise. Any
/// thread; calling it again does nothing. In the component muster::etcd.
void EnableEtcd();

}  // namespace muster
