#include "support/raw_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace muster::test {

namespace {

[[noreturn]] void Fail(const std::string& what) { throw std::runtime_error("raw socket: " + what); }
[[noreturn]] void FailWithErrno(const std::string& what) {
  const int number = errno;
  Fail(what + ": " + std::strerror(number));
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

RawSocket::RawSocket(int fd) : fd_(fd) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

RawSocket::RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RawSocket& RawSocket::operator=(RawSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RawSocket::~RawSocket() { Close(); }

void RawSocket::Send(std::string_view bytes) {
  const Clock::time_point give_up = Clock::now() + kPatience;
  while (!bytes.empty()) {
    bytes.remove_prefix(SendWhatFits(bytes));
    if (!bytes.empty() && !Await(POLLOUT, give_up)) Fail("the peer does not take what is sent");
  }
}

size_t RawSocket::SendWhatFits(std::string_view bytes) {
  const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno != EAGAIN && errno != EINTR) FailWithErrno("send");
  return 0;
}

std::string RawSocket::Receive(size_t count, milliseconds patience) {
  const Clock::time_point give_up = Clock::now() + patience;
  std::string got;
  while (got.size() < count) {
    const std::string more = ReadOnce(count - got.size(), give_up);
    if (more.empty()) {
      Fail("closed after " + std::to_string(got.size()) + " of " + std::to_string(count) +
           " bytes");
    }
    got += more;
  }
  return got;
}

std::string RawSocket::ReceiveSome(milliseconds patience) {
  const std::string got = ReadOnce(64 * 1024, Clock::now() + patience);
  if (got.empty()) Fail("closed before anything came");
  return got;
}

std::string RawSocket::ReceiveUntilClosed(milliseconds patience) {
  const Clock::time_point give_up = Clock::now() + patience;
  std::string got;
  while (true) {
    const std::string more = ReadOnce(64 * 1024, give_up);
    if (more.empty()) return got;
    got += more;
  }
}

bool RawSocket::IsClosedByPeer() {
  char scratch[4096];
  while (true) {
    const ssize_t count = recv(fd_, scratch, sizeof scratch, 0);
    if (count == 0) return true;
    if (count < 0) return errno != EAGAIN && errno != EINTR;
  }
}

void RawSocket::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

void RawSocket::CloseAbruptly() {
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  Close();
}

void RawSocket::LimitBuffers(int bytes) {
  setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

void RawSocket::CloseSending() { shutdown(fd_, SHUT_WR); }

bool RawSocket::Await(short events, Clock::time_point give_up) const {
  pollfd item{.fd = fd_, .events = events, .revents = 0};
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(give_up - Clock::now()).count();
    const int ready = poll(&item, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) FailWithErrno("poll");
  }
}

std::string RawSocket::ReadOnce(size_t count_max, Clock::time_point give_up) {
  std::string into(std::min<size_t>(count_max, 256 * 1024), '\0');
  while (true) {
    const ssize_t count = recv(fd_, into.data(), into.size(), 0);
    if (count >= 0) {
      into.resize(static_cast<size_t>(count));
      return into;
    }
    if (errno == ECONNRESET || errno == EPIPE) return "";
    if (errno != EAGAIN && errno != EINTR) FailWithErrno("recv");
    if (!Await(POLLIN, give_up)) Fail("nothing came in time");
  }
}

RawListener::RawListener() {
  const BoundSocket bound = BindLoopback();
  fd_ = bound.fd;
  port_ = bound.port;
  if (listen(fd_, 128) != 0) FailWithErrno("listen");
}

RawListener::~RawListener() { close(fd_); }

bool RawListener::HasWaiting(milliseconds patience) const {
  pollfd item{.fd = fd_, .events = POLLIN, .revents = 0};
  return poll(&item, 1, static_cast<int>(patience.count())) > 0;
}

RawSocket RawListener::Accept(milliseconds patience) {
  if (!HasWaiting(patience)) Fail("no connection came in time");
  const int peer = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (peer < 0) FailWithErrno("accept");
  return RawSocket(peer);
}

BoundSocket BindLoopback() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    FailWithErrno("bind to loopback");
  }
  return {.fd = fd, .port = ntohs(address.sin_port)};
}

bool HasIpv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool has = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return has;
}

}  // namespace muster::test
