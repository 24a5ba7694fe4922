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
  EtcdConnector etcd{};  ///< Instead of a server: a client for each node.
  std::string run_id{};
  size_t nodes = 4;
  size_t kill = 0;  ///< Nodes whose connections end without a leave, once the round is complete.
  RunSettings settings{};
  Duration patience = 60s;  ///< For each step.
  /// Called while the round stands, before anybody dies.
  std::function<void()> hold{};
  /// Connections in the making: a real fleet does not come in one instant, either, and the
  /// kernel's queue of newcomers ends at 4096.
  size_t in_flight_max = 512;
};

struct FleetReport {
  Duration formed{};             ///< From the first connect to the last assignment.
  Duration reformed{};           ///< From the deaths to the last survivor's next assignment.
  bool ranks_ok = true;          ///< Every rank once, the same world and round for all.
  double messages_per_node = 0;  ///< Both ways, until all had their assignment.
  double bytes_per_node = 0;
};

/// Lets them meet once. Blocks. kTimeout, kUnavailable: what kept them.
Result<FleetReport> RunFleet(const FleetOptions& options);

}  // namespace muster::load
