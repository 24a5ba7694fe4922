// TCP sockets as the kernel knows them: those of clients, and listening ones with their port.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"
#include "os/posix/owned_fd.h"

namespace muster {

/// A client's socket, non-blocking, whose small messages leave at once and are not paced. Not open:
/// errno says why.
OwnedFd OpenClientSocket(int family);

/// connect(2): 0, or the errno.
int ConnectSocket(int fd, const sockaddr_storage& address);

/// How the connection attempt of a non-blocking socket ended: 0, or an errno.
int ConnectError(int fd);

/// A bound and listening socket; closes it unless released.
class ListeningSocket {
 public:
  /// `host` "": all interfaces, IPv6 and IPv4 on one socket, falling back to IPv4 alone. Port 0:
  /// the kernel chooses. kConflict: the port is taken. kUnavailable, kInvalid: see the message.
  static Result<ListeningSocket> Bind(const std::string& host, uint16_t port);

  /// On all interfaces, at a port that is free on each of them. Blocking. kUnavailable.
  static Result<ListeningSocket> OnFreePort();

  /// Takes over a bound socket (listening or not). `port`, unless 0, must be the one it is bound
  /// to: kInvalid.
  static Result<ListeningSocket> FromDescriptor(int fd, uint16_t port);

  uint16_t port() const { return port_; }
  /// "127.0.0.1:4711" as bound.
  const std::string& address() const { return address_; }
  int fd() const { return fd_.get(); }
  int Release() { return fd_.Release(); }
  void Close() { fd_.Close(); }
  /// Another descriptor of the socket, not for children. kUnavailable.
  Result<int> Duplicate() const;

 private:
  ListeningSocket(OwnedFd fd, uint16_t port, std::string address)
      : fd_(std::move(fd)), port_(port), address_(std::move(address)) {}

  static Result<ListeningSocket> Listen(OwnedFd fd);

  OwnedFd fd_;
  uint16_t port_;
  std::string address_;
};

}  // namespace muster
