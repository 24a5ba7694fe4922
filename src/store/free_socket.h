// Finds a free port, and returns the socket that reserves it.
#pragma once

#include "os/posix/tcp_socket.h"

namespace muster {

/// A listening socket on a port that was free on all addresses; StoreServerOptions::listen_fd takes
/// it. Makes up to `attempts` attempts, because a port may become free at any moment.
/// std::runtime_error if there is no such port.
ListeningSocket FreeSocket(int attempts = 1);

}  // namespace muster
