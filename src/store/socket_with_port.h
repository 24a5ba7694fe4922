// A port that is free, and the socket that keeps it so.
#pragma once

#include <cstdint>

namespace muster {

/// A listening socket on a port that was free. Closed with the object, unless released.
class SocketWithPort {
 public:
  /// std::runtime_error if there is no such port.
  SocketWithPort();
  ~SocketWithPort();
  SocketWithPort(SocketWithPort&& other) noexcept;
  SocketWithPort(const SocketWithPort&) = delete;
  SocketWithPort& operator=(const SocketWithPort&) = delete;

  uint16_t port() const { return port_; }
  int fd() const { return fd_; }
  /// The caller closes it from now on; StoreServerOptions::listen_fd takes it.
  int Release();

 private:
  int fd_ = -1;
  uint16_t port_ = 0;
};

}  // namespace muster
