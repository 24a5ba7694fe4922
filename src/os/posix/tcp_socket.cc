#include "os/posix/tcp_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

Error SocketError(std::string_view what) {
  return SystemError(what, errno, errno == EADDRINUSE ? Code::kConflict : Code::kUnavailable);
}

// Best effort: none of the options is needed.
void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

// BBR paces its segments, with a timer and two clock reads for each. For messages of a few dozen
// bytes that is a tenth of the cost of sending, without any gain. Every Linux has Reno; any other
// choice of the administrator is respected.
void AvoidPacing(int fd) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return;
  if (!std::string_view(name.data()).starts_with("bbr")) return;
  constexpr std::string_view kPlain = "reno";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kPlain.data(), kPlain.size());
}

Result<OwnedFd> BindOne(const sockaddr_storage& address, int type, bool reuses_port) {
  OwnedFd fd(socket(address.ss_family, type | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return SocketError(Concat("socket for ", ToString(address)));
  if (reuses_port) SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ss_family == AF_INET6) SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd.get(), Raw(address), SizeOf(address)) == 0) return fd;
  return SocketError(Concat("bind to ", ToString(address)));
}

// IPv6 first: that one socket serves both families. Without IPv6, only IPv4 is left.
std::vector<sockaddr_storage> AnyAddresses(uint16_t port) {
  return {ResolveLiteral({"::", port})->front(), ResolveLiteral({"0.0.0.0", port})->front()};
}

}  // namespace

OwnedFd OpenClientSocket(int family) {
  OwnedFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return fd;
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  AvoidPacing(fd.get());
  return fd;
}

int ConnectSocket(int fd, const sockaddr_storage& address) {
  return connect(fd, Raw(address), SizeOf(address)) == 0 ? 0 : errno;
}

int ConnectError(int fd) {
  int failure = 0;
  socklen_t length = sizeof failure;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length);
  return failure;
}

Result<ListeningSocket> ListeningSocket::Bind(const std::string& host, uint16_t port) {
  std::vector<sockaddr_storage> addresses = AnyAddresses(port);
  if (!host.empty()) {
    // No deadline: without its address a server can do nothing else.
    MUSTER_TRY(addresses, Resolve({host, port}, Instant{}, Instant::Never()));
  }
  Error failure{Code::kUnavailable, "no address"};
  for (const sockaddr_storage& address : addresses) {
    Result<OwnedFd> fd = BindOne(address, SOCK_STREAM | SOCK_NONBLOCK, /*reuses_port=*/true);
    if (fd) return Listen(std::move(*fd));
    // A port in use is the more useful message than a missing address family.
    if (failure.code != Code::kConflict) failure = std::move(fd).error();
  }
  return failure;
}

Result<ListeningSocket> ListeningSocket::OnFreePort() {
  Error failure{Code::kUnavailable, "no address"};
  for (const sockaddr_storage& address : AnyAddresses(0)) {
    Result<OwnedFd> fd = BindOne(address, SOCK_STREAM, /*reuses_port=*/false);
    // Set after bind: the port must be free without it. But connections inherit it, and without it
    // the connections of an earlier server would block the port for its successor for a minute.
    if (fd) SetOption(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1);
    Result<ListeningSocket> socket =
        fd ? Listen(std::move(*fd)) : Result<ListeningSocket>(std::move(fd).error());
    if (socket) return socket;
    failure = std::move(socket).error();
  }
  return failure;
}

Result<ListeningSocket> ListeningSocket::FromDescriptor(int fd, uint16_t port) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return MakeError(Code::kInvalid, "descriptor ", fd, " is not open");
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  MUSTER_TRY(ListeningSocket socket, Listen(OwnedFd(fd)));
  if (port != 0 && socket.port() != port) {
    return MakeError(Code::kInvalid, "the socket handed in is bound to port ", socket.port(),
                     ", but port ", port, " was given");
  }
  return socket;
}

Result<ListeningSocket> ListeningSocket::Listen(OwnedFd fd) {
  // Accepted connections inherit these options from the listener, which saves system calls for
  // each.
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  // A peer machine that vanished is noticed after 60 s + 3 x 20 s, and its descriptor is then
  // freed.
  SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, 60);
  SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, 20);
  SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
  AvoidPacing(fd.get());
  const std::optional<sockaddr_storage> bound = LocalAddress(fd.get());
  if (!bound) return SocketError("getsockname");
  if (bound->ss_family != AF_INET && bound->ss_family != AF_INET6) {
    return MakeError(Code::kInvalid, "descriptor ", fd.get(), " is not a TCP socket");
  }
  // -1: as long a queue as the kernel allows (somaxconn); thousands of nodes connect in the same
  // instant.
  if (listen(fd.get(), -1) != 0) return SocketError(Concat("listen on ", ToString(*bound)));
  return ListeningSocket(std::move(fd), PortOf(*bound), ToString(*bound));
}

Result<int> ListeningSocket::Duplicate() const {
  const int copy = fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return SystemError("no descriptor to be had");
  return copy;
}

}  // namespace muster
