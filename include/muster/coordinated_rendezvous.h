// The backend "muster": a server runs the rendezvous for all nodes, and notifies each of them at
// once of what concerns it.
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
  /// Whether this process serves. By default: if `host` is this machine and no server is there.
  std::optional<bool> is_host{};
  std::string run_id;
  std::string local_addr{};  ///< Under which others reach this machine; empty: the address that
                             ///< the server sees.

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
  std::chrono::milliseconds keep_alive_interval{1'000};
  int64_t keep_alive_max_attempt = 3;    ///< A node silent for so many intervals is declared lost.
  std::chrono::milliseconds grace{300};  ///< For a node whose connection broke to come back.
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

/// The handler. Serves, where that is decided; connects later, and keeps trying until a call's time
/// is over. On a server without a coordinator (PyTorch's), it does everything through the c10d
/// backend, which ActiveBackend() shows.
///
/// NextRendezvous() returns the moment the round is complete. IsClosed() and NumNodesWaiting() cost
/// no round trip: the server sends what changes. It reports many waiting nodes only when their
/// number has doubled: above 0 the number is a lower bound. Other calls may be made while one
/// waits.
///
/// RendezvousConnectionError if it is configured to serve and cannot; std::invalid_argument.
RendezvousHandlerPtr CreateCoordinatedHandler(CoordinatedRendezvousOptions options);

/// What the registry makes for "muster".
RendezvousHandlerPtr CreateCoordinatedHandler(const RendezvousParameters& parameters);

}  // namespace muster
