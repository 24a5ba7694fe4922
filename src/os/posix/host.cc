#include "os/posix/host.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/name_lookup.h"
#include "os/posix/posix_clock.h"

namespace muster {

namespace {

/// An address with IPv4 in its IPv6 form, so that both notations compare equal.
struct Ip {
  std::array<uint8_t, 16> bytes{};
  uint32_t scope = 0;  // the interface of a link-local address; 0: not said

  bool IsLoopback() const {
    constexpr std::array<uint8_t, 13> kMapped127 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
    constexpr std::array<uint8_t, 16> kOne = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    return bytes == kOne || std::equal(kMapped127.begin(), kMapped127.end(), bytes.begin());
  }

  friend bool operator==(const Ip& a, const Ip& b) {
    return a.bytes == b.bytes && (a.scope == b.scope || a.scope == 0 || b.scope == 0);
  }
};

using Ips = std::vector<Ip>;

std::optional<Ip> ToIp(const sockaddr* address) {
  Ip ip;
  if (address != nullptr && address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    ip.bytes[10] = ip.bytes[11] = 0xff;
    std::memcpy(&ip.bytes[12], &v4.sin_addr, 4);
    return ip;
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    std::memcpy(ip.bytes.data(), &v6.sin6_addr, ip.bytes.size());
    ip.scope = v6.sin6_scope_id;
    return ip;
  }
  return std::nullopt;
}

bool Overlap(const Ips& some, const Ips& others) {
  return std::find_first_of(some.begin(), some.end(), others.begin(), others.end()) != some.end();
}

Ips InterfaceAddresses() {
  Ips ips;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ips;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (const std::optional<Ip> ip = ToIp(item->ifa_addr)) ips.push_back(*ip);
  }
  freeifaddrs(list);
  return ips;
}

/// What the resolver knows about a name; nothing at all if it does not know it.
struct HostRecord {
  std::string canonical;
  Ips addresses;
};

HostRecord LookUp(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_CANONNAME;
  addrinfo* list = nullptr;
  HostRecord record;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return record;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    // Only the first item has the canonical name.
    if (item->ai_canonname != nullptr && record.canonical.empty())
      record.canonical = item->ai_canonname;
    if (const std::optional<Ip> ip = ToIp(item->ai_addr)) record.addresses.push_back(*ip);
  }
  freeaddrinfo(list);
  return record;
}

// Resolve() would do, but it does not tell the canonical name.
HostRecord LookUpInTime(const std::string& name) {
  auto promise = std::make_shared<std::promise<HostRecord>>();
  std::future<HostRecord> answer = promise->get_future();
  try {
    // Detached: there is no way to stop getaddrinfo. It holds nothing of ours but its own promise.
    std::thread([promise, name] { promise->set_value(LookUp(name)); }).detach();
  } catch (const std::system_error&) {
    return {};  // out of threads: as good as a resolver that does not answer
  }
  if (!ComesWithin(answer, kNameLookupMax)) return {};
  return answer.get();
}

Ips AddressesOf(const std::string& host) {
  const auto found = Resolve({host, 0}, Instant{}, Instant{} + kNameLookupMax);
  Ips ips;
  if (!found) return ips;
  for (const sockaddr_storage& address : *found) {
    if (const std::optional<Ip> ip = ToIp(reinterpret_cast<const sockaddr*>(&address)))
      ips.push_back(*ip);
  }
  return ips;
}

// Names are compared without regard to case, and to the dot at the end that makes one absolute.
// Letters beyond ASCII are left alone, as the resolver does.
bool SameName(std::string_view a, std::string_view b) {
  if (a.ends_with('.')) a.remove_suffix(1);
  if (b.ends_with('.')) b.remove_suffix(1);
  return LowerCase(a) == LowerCase(b);
}

Result<PortSocket> ListenOnWildcard(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return Error{Code::kUnavailable, Concat("socket: ", std::string_view(std::strerror(errno)))};
  }
  const auto failure = [fd](std::string_view what) {
    const int number = errno;
    close(fd);
    return Error{Code::kUnavailable, Concat(what, ": ", std::string_view(std::strerror(number)))};
  };
  const int off = 0;
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_storage any{};  // port 0 of the wildcard address, in both families
  any.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&any), size) != 0) return failure("bind");
  // After bind: the port must be free without it. But connections inherit it, and without it those
  // of a server that was here would keep its successor from the port for a minute.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listen(fd, SOMAXCONN) != 0) return failure("listen");
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size) != 0) return failure("getsockname");
  return PortSocket{.fd = fd, .port = PortOf(any)};
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};  // the last byte stays 0 whatever the kernel writes
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string FullyQualifiedHostName() {
  std::string plain = HostName();
  if (plain.find('.') != std::string::npos) return plain;
  std::string canonical = LookUpInTime(plain).canonical;
  return canonical.find('.') != std::string::npos ? canonical : plain;
}

bool IsThisHost(const std::string& host) {
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  const std::string own_name = HostName();
  if (SameName(host, "localhost") || SameName(host, own_name)) return true;
  const Ips theirs = AddressesOf(host);
  if (std::any_of(theirs.begin(), theirs.end(), [](const Ip& ip) { return ip.IsLoopback(); }))
    return true;
  if (Overlap(theirs, InterfaceAddresses())) return true;
  // Behind address translation the machine's name may stand for an address that no interface has.
  const HostRecord own = LookUpInTime(own_name);
  return (!own.canonical.empty() && SameName(host, own.canonical)) ||
         Overlap(theirs, own.addresses);
}

bool IsHere(const std::string& host) {
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  if (SameName(host, "localhost") || SameName(host, HostName())) return true;
  const Ips theirs = AddressesOf(host);
  return std::ranges::any_of(theirs, &Ip::IsLoopback) || Overlap(theirs, InterfaceAddresses());
}

std::string AddressTowards(const Endpoint& peer) {
  const auto addresses = Resolve(peer, Instant{}, Instant{} + kNameLookupMax);
  if (!addresses) return HostName();
  for (const sockaddr_storage& address : *addresses) {
    const int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const bool known = connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    close(fd);
    const auto ip = known ? ToIp(reinterpret_cast<const sockaddr*>(&own)) : std::nullopt;
    if (!ip || ip->IsLoopback()) continue;
    if (const Result<Endpoint> text = ParseHostPort(ToString(own))) return text->host;
  }
  return HostName();
}

Result<PortSocket> ListenOnFreePort() {
  // IPv6 first: that one socket stands for both families. Without IPv6, IPv4 is all there is.
  if (Result<PortSocket> both = ListenOnWildcard(AF_INET6)) return both;
  return ListenOnWildcard(AF_INET);
}

Status CanBeResolved(const std::string& host) {
  constexpr int kAttempts = 10;
  PosixClock clock;
  int outcome = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) clock.SleepUntil(clock.Now() + 500ms);
    if (IsInterrupted())
      return Error{Code::kInterrupted, Concat("interrupted while looking up '", host, "'")};
    addrinfo* found = nullptr;
    outcome = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (found != nullptr) freeaddrinfo(found);
    if (outcome == 0) return Ok();
    if (outcome != EAI_AGAIN) break;
  }
  return Error{Code::kNotFound,
               Concat("host '", Printable(host), "' is not known: ", gai_strerror(outcome))};
}

std::string OwnPath() {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : "";
}

void CloseSocket(int fd) { close(fd); }

Result<int> DuplicateDescriptor(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0)
    return Error{Code::kUnavailable, Concat("no descriptor to be had: ", std::strerror(errno))};
  return copy;
}

}  // namespace muster
