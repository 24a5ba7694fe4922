// Finds the TCP servers that processes of this program run on this machine, in /proc. Stateless;
// any thread.
#pragma once

#include <string>
#include <vector>

#include "base/endpoint.h"

namespace muster {

struct LocalServer {
  Endpoint at;         ///< Where this machine reaches it.
  std::string action;  ///< The first argument of its process.
};

/// The listening sockets that an event loop watches, in processes of this user that run the same
/// program as this one in the same network namespace. A socket that no loop watches is left out:
/// connections would stay in its queue. Empty without /proc. In the order of the process ids.
std::vector<LocalServer> LocalServers();

}  // namespace muster
