#include "support/raw_client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace muster::test {

namespace {

int Connect(uint16_t port, Family family) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (family == Family::kIpv4) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    size = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(port);
    size = sizeof address;
  }
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&storage), size) != 0) {
    const int number = errno;
    if (fd >= 0) close(fd);
    throw std::runtime_error(std::string("raw client: connect: ") + std::strerror(number));
  }
  return fd;
}

uint64_t Number(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    number |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return number;
}

}  // namespace

RawClient::RawClient(uint16_t port, Family family) : RawSocket(Connect(port, family)) {}

RawClient RawClient::Validated(uint16_t port, Family family) {
  RawClient client(port, family);
  client.Send(ValidateBytes());
  return client;
}

std::string RawClient::Ask(std::string_view request, size_t reply_bytes) {
  Send(request);
  return Receive(reply_bytes);
}

int64_t RawClient::AskNumber(std::string_view request) {
  Send(request);
  return ReceiveNumber();
}

std::string RawClient::AskBlob(std::string_view request) {
  Send(request);
  return ReceiveBlob();
}

int64_t RawClient::ReceiveNumber() { return static_cast<int64_t>(Number(Receive(8))); }

std::string RawClient::ReceiveBlob() { return Receive(Number(Receive(8))); }

std::string RawClient::SaidSoFar() {
  const std::string pong = U32(next_nonce_);
  Send(PingBytes(next_nonce_++));
  std::string said;
  while (!said.ends_with(pong)) said += Receive(1);
  said.resize(said.size() - pong.size());
  return said;
}

void SendInPieces(RawSocket& client, std::string_view bytes, size_t piece,
                  const std::function<void()>& settle) {
  while (!bytes.empty()) {
    const std::string_view next = bytes.substr(0, piece);
    client.Send(next);
    settle();
    bytes.remove_prefix(next.size());
  }
}

size_t SendUntilRefused(RawSocket& client, std::string_view chunk, size_t bytes_max,
                        const std::function<void()>& settle) {
  constexpr int kOpportunities = 200;
  size_t total = 0;
  size_t at = 0;  // in the chunk: requests must not be torn
  for (int refused = 0; refused < kOpportunities && total < bytes_max;) {
    const size_t sent = client.SendWhatFits(chunk.substr(at));
    total += sent;
    at = (at + sent) % chunk.size();
    if (sent > 0) {
      refused = 0;
    } else {
      ++refused;
      settle();
    }
  }
  return total;
}

}  // namespace muster::test
