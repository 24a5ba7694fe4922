// A bare libuv echo server: the minimum for a server on libuv. Latencies are compared with it.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"

namespace muster::load {

/// Serves on 127.0.0.1, on a free port that `ready` gets, until SIGTERM or SIGINT. Blocks.
Status RunEchoServer(const std::function<void(uint16_t port)>& ready);

}  // namespace muster::load
