// Socket addresses: their text, the lookup of names, and the addresses of sockets.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"

namespace muster {

/// "127.0.0.1:4711", "[::1]:4711"; an IPv4 address mapped into IPv6 is shown as IPv4. Never looks
/// up a name.
std::string ToString(const sockaddr_storage& address);

/// As system calls take it.
inline const sockaddr* Raw(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}
socklen_t SizeOf(const sockaddr_storage& address);

/// The addresses of a socket and of its peer. Nothing: it is no longer connected.
std::optional<sockaddr_storage> LocalAddress(int fd);
std::optional<sockaddr_storage> PeerAddress(int fd);

/// The address without its port, IPv4 mapped into IPv6, so that both notations compare equal.
using IpBytes = std::array<uint8_t, 16>;
IpBytes BytesOf(const sockaddr& address);
bool IsMapped(const IpBytes& bytes);
/// "127.0.0.1", "::1".
std::string ToString(const IpBytes& bytes);

/// The port of an IPv4 or IPv6 address.
uint16_t PortOf(const sockaddr_storage& address);

/// In the order of the list, but IPv6 first. Frees the list.
std::vector<sockaddr_storage> TakeAddresses(addrinfo* list);

/// The address of an `endpoint` whose host is a literal: no lookup, no wait.
Result<std::vector<sockaddr_storage>> ResolveLiteral(const Endpoint& endpoint);

/// All addresses of `host`, IPv6 first. Literals are answered at once; names are looked up on a
/// thread of their own, because a resolver can hang for longer than its caller may. kUnavailable:
/// no such name (now), or no thread can be started. kTimeout.
Result<std::vector<sockaddr_storage>> Resolve(const Endpoint& endpoint, Instant now,
                                              Instant deadline);

/// The same for a name, with getaddrinfo()'s flags.
struct HostRecord {
  std::string canonical;  ///< With AI_CANONNAME.
  std::vector<sockaddr_storage> addresses;
};
Result<HostRecord> LookUpInTime(const Endpoint& endpoint, int flags, Instant now, Instant deadline);

}  // namespace muster
