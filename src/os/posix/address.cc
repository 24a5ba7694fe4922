#include "os/posix/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/name_lookup.h"

namespace muster {

namespace {

using Addresses = std::vector<sockaddr_storage>;

Result<Addresses> LookUp(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = Concat(endpoint.port);
  const int failure = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (failure != 0) return Error{Code::kUnavailable, gai_strerror(failure)};
  Addresses addresses;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    std::memcpy(&addresses.emplace_back(), item->ai_addr, item->ai_addrlen);
  }
  freeaddrinfo(list);
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const sockaddr_storage& a) { return a.ss_family == AF_INET6; });
  return addresses;
}

}  // namespace

std::string ToString(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return Concat(std::string_view(text), ':', PortOf(address));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
    return Concat(std::string_view(text), ':', PortOf(address));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return Concat('[', std::string_view(text), "]:", PortOf(address));
}

uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

Result<Addresses> ResolveLiteral(const Endpoint& endpoint) {
  return LookUp(endpoint, AI_NUMERICHOST);
}

Result<Addresses> Resolve(const Endpoint& endpoint, Instant now, Instant deadline) {
  if (Result<Addresses> literal = ResolveLiteral(endpoint)) return literal;
  // Detached: there is no way to stop getaddrinfo. It holds nothing of ours but its own promise.
  auto promise = std::make_shared<std::promise<Result<Addresses>>>();
  std::future<Result<Addresses>> answer = promise->get_future();
  try {
    std::thread([promise, endpoint] { promise->set_value(LookUp(endpoint, 0)); }).detach();
  } catch (const std::system_error& failure) {  // the one way in which std::thread says so
    return Error{Code::kUnavailable, Concat("looking up '", endpoint.host, "': no thread for it: ",
                                            std::string_view(failure.what()))};
  }
  const Duration limit = deadline == Instant::Never() ? Duration::max() : deadline - now;
  if (!ComesWithin(answer, std::max<Duration>(limit, 0ns))) {
    if (IsInterrupted())
      return Error{Code::kInterrupted,
                   Concat("interrupted while looking up '", endpoint.host, "'")};
    return Error{Code::kTimeout, Concat("looking up '", endpoint.host, "' took too long")};
  }
  return answer.get();
}

}  // namespace muster
