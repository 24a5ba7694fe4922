// Many idle connections: how fast they can be opened, and what they cost the server.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "load/dialect.h"
#include "load/process_meter.h"

namespace muster::load {

struct ConnectionsOptions {
  Endpoint server;
  Protocol protocol = Protocol::kTcpStore;
  pid_t server_pid = 0;  ///< Its memory is reported; 0: no memory is.
  size_t count = 1000;
};

struct ConnectionsReport {
  Duration elapsed{};  ///< From the first connect to the last first answer.
  std::optional<Memory> memory_before;
  std::optional<Memory> memory;  ///< While all were open.
  std::optional<Duration> server_cpu;
};

/// Opens them, exchanges a message on each, holds all, exchanges one more on each, and closes them.
/// Blocks.
Result<ConnectionsReport> HoldConnections(const ConnectionsOptions& options);

}  // namespace muster::load
