// Opens many connections at once, as a starting fleet does. A bounded number is being opened at a
// time, so that the server's backlog does not overflow. A connection is used only after the server
// has answered its greeting.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "load/descriptor.h"

namespace muster::load {

struct OpenOptions {
  Endpoint server;
  size_t count = 1;
  /// The first bytes of connection number i, in one write.
  std::function<std::string(size_t i)> hello;
  /// The answer that must come, to the byte.
  std::string answer;
  size_t in_flight_max = 256;  ///< Redis's backlog is 511, the kernel's default 4096.
  Duration patience = 30s;     ///< For all of them together.
};

struct Opened {
  std::vector<Descriptor> sockets;  ///< Non-blocking, in the order of their numbers.
  Duration elapsed{};               ///< From the first connect to the last answer.
};

/// Blocks. kUnavailable: nothing listens, it disconnected, or it sent another answer. kTimeout:
/// `patience` has passed.
Result<Opened> OpenConnections(const OpenOptions& options);

/// Sends `question` on every socket and waits for `answer` on each: shows that all are alive. Same
/// errors.
Status AskAll(const std::vector<Descriptor>& sockets, const std::string& question,
              const std::string& answer, Duration patience);

}  // namespace muster::load
