// Who asks: a number that the driver gives to each connection (or blocked call) and never uses
// twice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

enum class ClientId : uint64_t {};

/// Clients whose parked WAIT or BARRIER is now to be answered with kStopWaiting, oldest first.
using Released = std::vector<ClientId>;

/// Lets maps keyed by std::string be searched with a view, without making a string first.
struct KeyHash {
  using is_transparent = void;
  size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
};

}  // namespace muster
