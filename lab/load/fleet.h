// A fleet of nodes in one process: each with a session of its own, over a connection of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "etcd/etcd_port.h"
#include "rendezvous/core/run_settings.h"

namespace muster::load {

struct FleetOptions {
  Endpoint server;
  EtcdConnector etcd{};  ///< A client for each node, instead of a server.
  std::string run_id{};
  size_t nodes = 4;
  size_t kill = 0;  ///< Nodes whose connections end without a leave, once the round is complete.
  RunSettings settings{};
  Duration patience = 60s;  ///< For each step.
  /// Called while the round is complete, before any node dies.
  std::function<void()> hold{};
  /// Connections being opened at a time. A real fleet does not arrive in one instant, either, and
  /// the kernel's accept queue has 4096 places.
  size_t in_flight_max = 512;
};

struct FleetReport {
  Duration formed{};             ///< From the first connect to the last assignment.
  Duration reformed{};           ///< From the deaths to the last surviving node's next assignment.
  bool ranks_ok = true;          ///< Every rank once, the same world and round for all nodes.
  double messages_per_node = 0;  ///< Both ways, until all had their assignment.
  double bytes_per_node = 0;
};

/// Lets them form a round once. Blocks. kTimeout and kUnavailable name the reason.
Result<FleetReport> RunFleet(const FleetOptions& options);

}  // namespace muster::load
