// Who asks: a number that the driver gives to each connection (or blocked call) and never uses
// twice.
#pragma once

#include <cstdint>
#include <vector>

namespace muster {

enum class ClientId : uint64_t {};

/// Clients whose parked WAIT or BARRIER is now to be answered with kStopWaiting, oldest first.
using Released = std::vector<ClientId>;

}  // namespace muster
