// A fleet that always changes: nodes die, leave and come back, and the others keep forming rounds.
// Everything is in one process, with a connection for each node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "rendezvous/core/run_settings.h"

namespace muster::load {

/// The state of the fleet.
struct SoakState {
  Duration at{};          ///< Since the first connect.
  size_t connected = 0;   ///< Nodes with an open session.
  size_t in_round = 0;    ///< Of them, in the latest round as far as they know.
  int64_t round = -1;     ///< The latest.
  uint64_t died = 0;      ///< Connections that ended without a leave.
  uint64_t left = 0;      ///< Nodes that left.
  uint64_t came = 0;      ///< Nodes that came, the first ones included.
  uint64_t given_up = 0;  ///< Nodes that the server declared lost although they were alive.
};

struct SoakOptions {
  Endpoint server;
  std::string run_id{};
  size_t nodes = 10'000;
  double churn_per_second = 0.001;  ///< Share of the nodes.
  Duration length = 600s;           ///< Length of the churn.
  Duration sample_every = 5s;
  RunSettings settings{};
  uint64_t seed = 0;
  Duration patience = 120s;    ///< For the first round, and for the round of all nodes after the
                               ///< churn.
  size_t in_flight_max = 512;  ///< Connections in the making.
  /// Called on the caller's thread while the fleet is alive. `calm`: all nodes are in one round,
  /// before or after the churn.
  std::function<void(const SoakState&, bool calm)> sample{};
};

struct SoakReport {
  SoakState last;
  bool ranks_ok = false;  ///< After the churn: every rank once, one round and world for all.
};

/// Blocks for that time; when it returns, every node has gone. kTimeout: no round of all nodes.
/// kUnavailable: a node was refused.
Result<SoakReport> RunSoak(const SoakOptions& options);

}  // namespace muster::load
