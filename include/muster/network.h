// Ports and names of this machine, and parsing of endpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// The descriptor of a listening socket on a port that was free: no other process can take the port
/// in between. StoreServerOptions::listen_fd takes it; otherwise the caller closes it.
/// std::runtime_error if there is no such port.
int ListenOnAFreePort();

/// A port that was free a moment ago. Prefer ListenOnAFreePort().
uint16_t FreePort();

struct HostAndPort {
  std::string host;
  int port = 0;  ///< `default_port` where none was written, whatever that is.
  bool operator==(const HostAndPort&) const = default;
};

/// "host", "host:port", "[ipv6]", "[ipv6]:port"; empty: localhost. std::invalid_argument quotes the
/// endpoint and says what is wrong with it.
HostAndPort ParseRendezvousEndpoint(std::string_view endpoint, int default_port);

/// Reads one to five digits, and nothing else.
std::optional<int> TryParsePort(std::string_view text);

/// Whether `host` is this machine: localhost, a loopback address, its name or one of its addresses.
bool MatchesThisMachine(const std::string& host);

/// The machine's fully qualified name, or its plain name if it has none.
std::string FullyQualifiedName();

}  // namespace muster
