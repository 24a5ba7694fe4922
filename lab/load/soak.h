// A fleet that never comes to rest: nodes die, leave and come back all the time, and the others
// form rounds without end. All of it in one process, each node over a connection of its own.
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

/// How the fleet stands.
struct SoakState {
  Duration at{};          ///< Since the first connect.
  size_t connected = 0;   ///< Nodes with an open session.
  size_t in_round = 0;    ///< Of them, in the latest round, as far as they know.
  int64_t round = -1;     ///< The latest.
  uint64_t died = 0;      ///< Connections that ended without a word.
  uint64_t left = 0;      ///< Nodes that said goodbye.
  uint64_t came = 0;      ///< Nodes that came, the first ones included.
  uint64_t given_up = 0;  ///< Nodes that the server declared lost although they were not ended.
};

struct SoakOptions {
  Endpoint server;
  std::string run_id{};
  size_t nodes = 10'000;
  double churn_per_second = 0.001;  ///< Share of the nodes.
  Duration length = 600s;           ///< Of the churn.
  Duration sample_every = 5s;
  RunSettings settings{};
  uint64_t seed = 0;
  Duration patience = 120s;    ///< For the first round, and for the one of all after the churn.
  size_t in_flight_max = 512;  ///< Connections in the making.
  /// Called on the caller's thread while the fleet lives on: `calm` once all are in one round,
  /// before the churn and after it.
  std::function<void(const SoakState&, bool calm)> sample{};
};

struct SoakReport {
  SoakState last;
  bool ranks_ok = false;  ///< After the churn: every rank once, one round and world for all.
};

/// Blocks for as long as that takes; when it returns, every node has gone. kTimeout: no round of
/// all nodes. kUnavailable: a node was refused.
Result<SoakReport> RunSoak(const SoakOptions& options);

}  // namespace muster::load
