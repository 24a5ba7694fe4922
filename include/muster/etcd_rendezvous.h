// The backend "etcd": the nodes meet in a cluster of etcd (v3), and one of them leads. The job
// survives the loss of any machine, also of that one.
//
// docs/internals/etcd.md describes the keys.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "muster/etcd.h"
#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

struct EtcdRendezvousOptions {
  static constexpr std::string_view kDefaultPrefix = "/muster";

  EtcdOptions etcd;
  std::string run_id;
  /// Under which others reach this machine. Empty: the address of its connections to etcd, or, if
  /// etcd is on this machine, its name.
  std::string local_addr{};

  // All nodes of a run must have the same values of these.
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  /// From reaching min_nodes to completing the round.
  std::chrono::milliseconds last_call{30'000};
  /// The same when a round re-forms after it has lost a member; without a loss, the round does not
  /// wait. At most last_call.
  std::chrono::milliseconds reform_timeout{500};
  /// Nodes that arrive within this time after a round has re-formed are held back: its members are
  /// notified when as many wait as are missing, or when the time is over. 0: they are notified of
  /// each node immediately.
  std::chrono::milliseconds rejoin_window{10'000};
  int64_t expected = 0;  ///< A first round with this many nodes has no last call; 0: unknown.
  /// A node that is silent for this many intervals is declared lost. Their sum is the time of its
  /// lease, in whole seconds, at least 2. The default is longer than a change of etcd's own leader,
  /// which takes up to 5 s if the old leader is cut off.
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

/// The handler. Connects later, and keeps trying until a call's time is over. In the component
/// muster::etcd.
///
/// NextRendezvous() returns as soon as the round is complete. RendezvousConnectionError: etcd is
/// out of reach for all of join_timeout, or refuses access; RendezvousStateError: a key of the run
/// holds a value that cannot be read. IsClosed() and NumNodesWaiting() need no round trip: the
/// leader reports changes. AwaitEvent() reports the loss of the lease also while etcd is out of
/// reach. Other calls may be made while one waits. UseAgentStore() is true unless
/// TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1.
RendezvousHandlerPtr CreateEtcdHandler(EtcdRendezvousOptions options);

/// What the registry creates for "etcd" and "etcd-v2" after EnableEtcd() was called. In the
/// component muster::etcd.
RendezvousHandlerPtr CreateEtcdHandler(const RendezvousParameters& parameters);

/// Registers the etcd backends of this process, which the registry otherwise refuses to create. Any
/// thread; calling it again does nothing. In the component muster::etcd.
void EnableEtcd();

}  // namespace muster
