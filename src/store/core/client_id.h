// The number of a client: the driver gives one to each connection (or blocked call) and never uses
// it twice.
#pragma once

#include <cstdint>
#include <vector>

namespace muster {

enum class ClientId : uint64_t {};

/// Clients whose parked WAIT or BARRIER must now be answered with kStopWaiting, oldest first.
using Released = std::vector<ClientId>;

}  // namespace muster
