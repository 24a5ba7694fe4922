// Socket addresses: to text, from names, and the few socket calls that libuv does not make for us.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"

namespace muster {

/// "127.0.0.1:4711", "[::1]:4711"; an IPv4 address mapped into IPv6 is shown as IPv4. Never looks a
/// name up.
std::string ToString(const sockaddr_storage& address);

/// The port of an IPv4 or IPv6 address.
uint16_t PortOf(const sockaddr_storage& address);

/// The address that `endpoint` spells out, if it does: no lookup, no wait.
Result<std::vector<sockaddr_storage>> ResolveLiteral(const Endpoint& endpoint);

/// All addresses of `host`, IPv6 first. Literals are answered at once; names are looked up on a
/// thread of their own, because a resolver can hang for longer than its caller may. kUnavailable:
/// no such name (now), or no thread to be had. kTimeout.
Result<std::vector<sockaddr_storage>> Resolve(const Endpoint& endpoint, Instant now,
                                              Instant deadline);

}  // namespace muster
