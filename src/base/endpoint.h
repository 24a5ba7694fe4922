// Where a server is: a host (name or literal) and a port.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace muster {

struct Endpoint {
  std::string host;
  uint16_t port = 0;

  /// "host:port", with brackets around an IPv6 literal.
  std::string ToString() const;
  bool operator==(const Endpoint&) const = default;
};

/// Reads "host:port", "[::1]:port" or ":port" (empty host). kInvalid: what is wrong, and what was
/// expected.
Result<Endpoint> ParseHostPort(std::string_view text);

}  // namespace muster
