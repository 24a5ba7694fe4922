// The backend "muster": a server runs the rendezvous for all nodes, and notifies each of them
// immediately of what concerns it.
//
// Every muster::StoreServer (and `muster serve`) hosts it, together with the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "muster/rendezvous_events.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"

namespace muster {

struct CoordinatedRendezvousOptions {
  std::string host = "localhost";  ///< Of the server.
  uint16_t port = 29400;
  /// Whether this process serves. Default: if `host` is this machine and there is no server.
  std::optional<bool> is_host{};
  std::string run_id;
  std::string local_addr{};  ///< Under which others reach this machine; empty: the address that
                             ///< the server sees.

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
  std::chrono::milliseconds keep_alive_interval{1'000};
  /// A node that is silent for this many intervals is declared lost.
  int64_t keep_alive_max_attempt = 3;
  std::chrono::milliseconds grace{300};  ///< Time for a node whose connection broke to reconnect.
  /// Which node gets which rank: "natural" (by address, node2 before node10), "text" (as PyTorch),
  /// "stable" (members of the last round keep their ranks where possible), "label".
  std::string rank_policy = "natural";

  std::string label{};                               ///< For the policy "label": a rack, a switch.
  std::chrono::milliseconds join_timeout{600'000};   ///< One NextRendezvous().
  std::chrono::milliseconds close_timeout{30'000};   ///< SetClosed() and Leave().
  RendezvousEventSink events{};                      ///< Null: the process's sink.
  std::function<void(std::string_view line)> log{};  ///< Messages for people; null: stderr.

  /// From parameters and their options is_host, join_timeout, last_call_timeout,
  /// reform_timeout, rejoin_window, close_timeout, keep_alive_interval, grace (seconds, also
  /// fractions), expected, keep_alive_max_attempt, rank_policy and label. std::invalid_argument
  /// says what is wrong.
  static CoordinatedRendezvousOptions From(const RendezvousParameters& parameters);
  void Validate() const;
};

/// The handler. Serves if it is configured or chosen to; connects later, and keeps trying until a
/// call's time is over. On a server without a coordinator (PyTorch's), it does everything through
/// the c10d backend, which ActiveBackend() shows.
///
/// NextRendezvous() returns as soon as the round is complete. IsClosed() and NumNodesWaiting() need
/// no round trip: the server sends changes. It reports many waiting nodes only when their number
/// has doubled: above 0 the number is a lower bound. Other calls may be made while one waits.
///
/// RendezvousConnectionError if it is configured to serve and cannot; std::invalid_argument.
RendezvousHandlerPtr CreateCoordinatedHandler(CoordinatedRendezvousOptions options);

/// What the registry creates for "muster".
RendezvousHandlerPtr CreateCoordinatedHandler(const RendezvousParameters& parameters);

}  // namespace muster
