#include "muster/network.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "base/trim.h"
#include "os/posix/host.h"
#include "store/free_socket.h"

namespace muster {

namespace {

constexpr int kPortMax = 65535;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The resolver judges names. This only refuses what can be neither a name nor an address: blanks,
// slashes, brackets, control characters, invalid UTF-8.
bool IsHost(std::string_view host) {
  const auto allowed = [](char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
           c == ':' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
  };
  return !host.empty() && std::all_of(host.begin(), host.end(), allowed) &&
         Printable(host, host.size()) == host;  // unchanged: everything beyond ASCII is UTF-8
}

std::string_view WithoutBrackets(std::string_view host) {
  const bool enclosed = host.size() > 1 && host.front() == '[' && host.back() == ']';
  return enclosed ? host.substr(1, host.size() - 2) : host;
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
  const std::string_view host = WithoutBrackets(text.substr(0, colon));
  int port = default_port;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const std::optional<int> parsed = TryParsePort(digits);
    if (!parsed || *parsed > kPortMax) {
      throw std::invalid_argument(Concat(
          "The port number of the rendezvous endpoint '", Printable(endpoint),
          "' must be an integer between 0 and ", kPortMax, " in at most five digits, but it is '",
          Printable(digits), "'; write host:port, or [address]:port for IPv6"));
    }
    port = *parsed;
  }
  if (!IsHost(host)) {
    throw std::invalid_argument(Concat(
        "The hostname of the rendezvous endpoint '", Printable(endpoint),
        "' must be a dot-separated list of labels or an IP address, but it is '", Printable(host),
        "'; write host:port, or [address]:port for IPv6, without a scheme or a path"));
  }
  return {.host = std::string(host), .port = port};
}

std::optional<int> TryParsePort(std::string_view text) {
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), IsDigit))
    return std::nullopt;
  int port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port;
}

bool MatchesThisMachine(const std::string& host) { return IsThisHost(host); }

std::string FullyQualifiedName() { return FullyQualifiedHostName(); }

}  // namespace muster
