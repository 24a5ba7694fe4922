// A port that is free, and the socket that keeps it so.
#pragma once

#include "os/posix/tcp_socket.h"

namespace muster {

/// A listening socket on a port that was free on all addresses; StoreServerOptions::listen_fd takes
/// it. Up to so many attempts: a port may become free at any moment. std::runtime_error if there is
/// no such port.
ListeningSocket FreeSocket(int attempts = 1);

}  // namespace muster
