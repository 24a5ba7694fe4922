#include "muster/network.h"

#include <algorithm>
#include <stdexcept>

#include "base/text.h"
#include "os/posix/host.h"
#include "store/free_socket.h"
#include "store/throw.h"

namespace muster {

namespace {

constexpr int kPortMax = 65535;

// The resolver checks names. This only refuses texts that can be neither a name nor an address:
// blanks, slashes, brackets, control characters, invalid UTF-8.
bool IsHost(std::string_view host) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == ':' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
  };
  // Unchanged: everything beyond ASCII is UTF-8.
  return !host.empty() && std::ranges::all_of(host, allowed) && OneLine(host) == host;
}

}  // namespace

ListeningSocket FreeSocket(int attempts) {
  Result<ListeningSocket> socket = ListeningSocket::OnFreePort();
  while (!socket && --attempts > 0) socket = ListeningSocket::OnFreePort();
  if (socket) return std::move(*socket);
  throw std::runtime_error(Concat("no free port: the system gives none away (",
                                  socket.error().message,
                                  "); close connections or widen net.ipv4.ip_local_port_range"));
}

int ListenOnAFreePort() { return FreeSocket().Release(); }
uint16_t FreePort() { return FreeSocket().port(); }

HostAndPort ParseRendezvousEndpoint(std::string_view endpoint, int default_port) {
  const std::string_view text = Trim(endpoint);
  if (text.empty()) return {.host = "localhost", .port = default_port};

  // A text that is wholly in brackets is a host: its last colon belongs to the address.
  const bool all_host = text.front() == '[' && text.back() == ']';
  const size_t colon = all_host ? std::string_view::npos : text.rfind(':');
  std::string_view host = text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  int port = default_port;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const std::optional<int> parsed = TryParsePort(digits);
    if (!parsed || *parsed > kPortMax) {
      throw Invalid("The port number of the rendezvous endpoint '", Printable(endpoint),
                    "' must be an integer between 0 and ", kPortMax,
                    " in at most five digits, but it is '", Printable(digits),
                    "'; write host:port, or [address]:port for IPv6");
    }
    port = *parsed;
  }
  if (!IsHost(host)) {
    throw Invalid("The hostname of the rendezvous endpoint '", Printable(endpoint),
                  "' must be a dot-separated list of labels or an IP address, but it is '",
                  Printable(host),
                  "'; write host:port, or [address]:port for IPv6, without a scheme or a path");
  }
  return {.host = std::string(host), .port = port};
}

std::optional<int> TryParsePort(std::string_view text) {
  const std::optional<uint32_t> port = ParseAll<uint32_t>(text);
  if (!port || text.size() > 5) return std::nullopt;
  return static_cast<int>(*port);
}

bool MatchesThisMachine(const std::string& host) { return IsThisHost(host); }

std::string FullyQualifiedName() { return FullyQualifiedHostName(); }

}  // namespace muster
