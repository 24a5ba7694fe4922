#include "support/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace muster::test {

namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Whether there was anything; false at the end.
bool Forward(int from, int to) {
  char bytes[16 * 1024];
  const ssize_t count = recv(from, bytes, sizeof bytes, 0);
  if (count <= 0) return false;
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t now = send(to, bytes + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += now;
  }
  return true;
}

}  // namespace

Proxy::Proxy(uint16_t target)
    : target_(target), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("the proxy cannot listen");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

Proxy::~Proxy() {
  ends_ = true;
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  Cut();
  close(listener_);
}

void Proxy::Accept() {
  while (!ends_) {
    const int near = accept(listener_, nullptr, nullptr);
    if (near < 0) return;
    const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(target_);
    if (blocked_ ||
        connect(far, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      close(near);
      close(far);
      continue;
    }
    const int on = 1;
    for (const int fd : {near, far}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++connections_;
    const std::lock_guard lock(mutex_);
    pairs_.push_back({near, far, std::thread([near, far] { Pump(near, far); })});
  }
}

void Proxy::Pump(int near, int far) {
  pollfd watched[] = {{near, POLLIN, 0}, {far, POLLIN, 0}};
  while (poll(watched, 2, -1) >= 0) {
    if (watched[0].revents != 0 && !Forward(near, far)) break;
    if (watched[1].revents != 0 && !Forward(far, near)) break;
  }
  shutdown(near, SHUT_RDWR);
  shutdown(far, SHUT_RDWR);
}

void Proxy::Cut() {
  const std::lock_guard lock(mutex_);
  for (Pair& pair : pairs_) {
    shutdown(pair.near, SHUT_RDWR);
    shutdown(pair.far, SHUT_RDWR);
    pair.pump.join();
    close(pair.near);
    close(pair.far);
  }
  pairs_.clear();
}

}  // namespace muster::test
