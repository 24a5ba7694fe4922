#include "histories/faulty_wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace muster::test {

namespace {

constexpr int64_t kEndless = INT64_MAX;
// Pieces into which one read is split. The limit keeps large values fast.
constexpr int kPiecesMax = 8;

int Dial(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

FaultyWire::FaultyWire(uint16_t target, uint64_t seed, const Faults& faults)
    : target_(target), faults_(faults), prng_(seed), end_(eventfd(0, EFD_CLOEXEC)) {
  const BoundSocket bound = BindLoopback();
  listener_ = bound.fd;
  port_ = bound.port;
  if (end_ < 0 || listen(listener_, 64) != 0) throw std::runtime_error("the wire cannot listen");
  acceptor_ = std::thread([this] { Accept(); });
}

FaultyWire::~FaultyWire() {
  const uint64_t one = 1;
  if (write(end_, &one, sizeof one) != sizeof one)
    std::terminate();  // cannot happen: an eventfd counts to 2^64 - 2
  acceptor_.join();
  for (Link& link : links_) {
    shutdown(link.near, SHUT_RDWR);
    shutdown(link.far, SHUT_RDWR);
    link.requests.join();
    link.replies.join();
    close(link.near);
    close(link.far);
  }
  close(listener_);
  close(end_);
}

void FaultyWire::Accept() {
  while (true) {
    pollfd watched[] = {{listener_, POLLIN, 0}, {end_, POLLIN, 0}};
    if (poll(watched, 2, -1) < 0 || watched[1].revents != 0) return;
    const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (near < 0) continue;
    const int far = Dial(target_);
    if (far < 0) {
      close(near);
      continue;
    }
    const int on = 1;
    for (const int fd : {near, far}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++links_made_;
    Way requests = MakeWay(near, far);
    Way replies = MakeWay(far, near);
    links_.push_back({near, far, std::thread([this, requests] { Pump(requests); }),
                      std::thread([this, replies] { Pump(replies); })});
  }
}

FaultyWire::Way FaultyWire::MakeWay(int from, int to) {
  // At some time a client must be able to reconnect.
  constexpr int kCutLinksMax = 3;
  const bool cut = faults_.cuts && links_made_ <= kCutLinksMax && prng_.Below(2) == 0;
  const int64_t bytes = cut ? static_cast<int64_t>(prng_.Below(500)) : kEndless;
  return {.from = from, .to = to, .prng = Prng(prng_.Next()), .bytes_left = bytes};
}

void FaultyWire::Pump(Way way) const {
  char bytes[16 * 1024];
  bool first = true;  // The greeting stays in one piece: PyTorch's server requires that.
  while (true) {
    const ssize_t count = recv(way.from, bytes, sizeof bytes, 0);
    if (count <= 0) break;
    size_t done = 0;
    const auto size = static_cast<size_t>(count);
    for (int pieces = 0; done < size && way.bytes_left > 0; ++pieces) {
      size_t piece = size - done;
      const bool split = faults_.splits && !first && pieces < kPiecesMax;
      if (split) piece = std::min(piece, 1 + way.prng.Below(40));
      if (faults_.delays && way.prng.Below(4) == 0) HoldUp(milliseconds(1 + way.prng.Below(3)));
      piece = std::min(piece, static_cast<size_t>(way.bytes_left));
      if (!Forward(way, bytes + done, piece)) break;
      done += piece;
      way.bytes_left -= static_cast<int64_t>(piece);
    }
    first = false;
    if (done < size || way.bytes_left == 0) break;
  }
  // The other direction reads an end of stream, too. Bytes that were forwarded before still arrive.
  shutdown(way.from, SHUT_RDWR);
  shutdown(way.to, SHUT_RDWR);
}

bool FaultyWire::Forward(Way& way, const char* bytes, size_t count) const {
  for (size_t sent = 0; sent < count;) {
    const ssize_t now = send(way.to, bytes + sent, count - sent, MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

void FaultyWire::HoldUp(milliseconds time) const {
  pollfd end{end_, POLLIN, 0};
  poll(&end, 1, static_cast<int>(time.count()));
}

}  // namespace muster::test
