#include "os/posix/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "os/posix/process.h"

namespace muster {

namespace {

using Addresses = std::vector<sockaddr_storage>;

constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Result<HostRecord> LookUp(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = Concat(endpoint.port);
  const int failure = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (failure != 0) return Error{Code::kUnavailable, gai_strerror(failure)};
  HostRecord record;
  // Only the first item has the canonical name.
  if (list->ai_canonname != nullptr) record.canonical = list->ai_canonname;
  record.addresses = TakeAddresses(list);
  return record;
}

/// Whether the answer came within `limit`. False, too, if the thread is interrupted.
bool ComesWithin(const std::future<Result<HostRecord>>& answer, Duration limit) {
  const auto comes = [&](Duration time) {
    return answer.wait_for(time) == std::future_status::ready;
  };
  Instant now = BootTime();
  for (const Instant deadline = now + limit; now < deadline; now = BootTime()) {
    if (CheckInterruption(now)) return false;
    // The library adds the time to its clock, which must not overflow.
    if (comes(std::min<Duration>(UntilNextCheck(deadline) - now, 1h))) return true;
  }
  return comes(0s);
}

template <typename GetName>
std::optional<sockaddr_storage> AddressFrom(GetName* get_name, int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (get_name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return address;
}

}  // namespace

std::vector<sockaddr_storage> TakeAddresses(addrinfo* list) {
  Addresses addresses;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next)
    std::memcpy(&addresses.emplace_back(), item->ai_addr, item->ai_addrlen);
  freeaddrinfo(list);
  std::stable_partition(addresses.begin(), addresses.end(), [](const sockaddr_storage& address) {
    return address.ss_family == AF_INET6;
  });
  return addresses;
}

socklen_t SizeOf(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::optional<sockaddr_storage> LocalAddress(int fd) { return AddressFrom(&getsockname, fd); }
std::optional<sockaddr_storage> PeerAddress(int fd) { return AddressFrom(&getpeername, fd); }

bool IsMapped(const IpBytes& bytes) {
  return std::equal(std::begin(kMapped), std::end(kMapped), bytes.begin());
}

IpBytes BytesOf(const sockaddr& address) {
  IpBytes bytes{};
  if (address.sa_family == AF_INET) {
    std::ranges::copy(kMapped, bytes.begin());
    std::memcpy(bytes.data() + sizeof kMapped,
                &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  } else if (address.sa_family == AF_INET6) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr,
                bytes.size());
  }
  return bytes;
}

std::string ToString(const IpBytes& bytes) {
  char text[INET6_ADDRSTRLEN] = "?";
  const bool is_mapped = IsMapped(bytes);
  inet_ntop(is_mapped ? AF_INET : AF_INET6, bytes.data() + (is_mapped ? sizeof kMapped : 0), text,
            sizeof text);
  return text;
}

std::string ToString(const sockaddr_storage& address) {
  return Endpoint{.host = ToString(BytesOf(*Raw(address))), .port = PortOf(address)}.ToString();
}

uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

Result<Addresses> ResolveLiteral(const Endpoint& endpoint) {
  MUSTER_TRY(HostRecord record, LookUp(endpoint, AI_NUMERICHOST));
  return std::move(record.addresses);
}

Result<Addresses> Resolve(const Endpoint& endpoint, Instant now, Instant deadline) {
  if (Result<Addresses> literal = ResolveLiteral(endpoint)) return literal;
  MUSTER_TRY(HostRecord record, LookUpInTime(endpoint, 0, now, deadline));
  return std::move(record.addresses);
}

Result<HostRecord> LookUpInTime(const Endpoint& endpoint, int flags, Instant now,
                                Instant deadline) {
  // Detached: there is no way to stop getaddrinfo. The thread references no other object than its
  // promise.
  auto promise = std::make_shared<std::promise<Result<HostRecord>>>();
  std::future<Result<HostRecord>> answer = promise->get_future();
  MUSTER_TRY(std::thread thread,
             StartThread(Concat("looking up '", endpoint.host, "': no thread for it"),
                         [=] { promise->set_value(LookUp(endpoint, flags)); }));
  thread.detach();
  if (!ComesWithin(answer, std::max<Duration>(deadline - now, 0ns))) {
    if (IsInterrupted())
      return MakeError(Code::kInterrupted, "interrupted while looking up '", endpoint.host, "'");
    return MakeError(Code::kTimeout, "looking up '", endpoint.host, "' took too long");
  }
  return answer.get();
}

}  // namespace muster
