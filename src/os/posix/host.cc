#include "os/posix/host.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/owned_fd.h"
#include "os/posix/posix_clock.h"
#include "os/posix/tcp_socket.h"

namespace muster {

namespace {

struct Ip {
  explicit Ip(const sockaddr& address) : bytes(BytesOf(address)) {
    if (address.sa_family == AF_INET6)
      scope = reinterpret_cast<const sockaddr_in6&>(address).sin6_scope_id;
  }

  bool IsLoopback() const {
    constexpr IpBytes kOne = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    return bytes == kOne || (IsMapped(bytes) && bytes[12] == 127);
  }

  friend bool operator==(const Ip& a, const Ip& b) {
    return a.bytes == b.bytes && (a.scope == b.scope || a.scope == 0 || b.scope == 0);
  }

  IpBytes bytes;
  uint32_t scope = 0;  // the interface of a link-local address; 0: none
};

using Ips = std::vector<Ip>;

bool Overlap(const Ips& some, const Ips& others) {
  return std::find_first_of(some.begin(), some.end(), others.begin(), others.end()) != some.end();
}

Ips InterfaceAddresses() {
  Ips ips;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ips;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    const sockaddr* address = item->ifa_addr;
    const bool is_ip =
        address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
    if (is_ip) ips.emplace_back(*address);
  }
  freeifaddrs(list);
  return ips;
}

bool AreHere(const Ips& ips) {
  return std::ranges::any_of(ips, &Ip::IsLoopback) || Overlap(ips, InterfaceAddresses());
}

Ips ToIps(const std::vector<sockaddr_storage>& addresses) {
  Ips ips;
  for (const sockaddr_storage& address : addresses) ips.emplace_back(*Raw(address));
  return ips;
}

/// Empty if the resolver does not know the name, or does not answer.
HostRecord RecordOf(const std::string& name) {
  const auto found = LookUpInTime({name, 0}, AI_CANONNAME, Instant{}, Instant{} + kNameLookupMax);
  return found ? *found : HostRecord{};
}

// Compares names without regard to case, and to the dot at the end of an absolute name. Like the
// resolver, this does not change letters beyond ASCII.
bool SameName(std::string_view a, std::string_view b) {
  if (a.ends_with('.')) a.remove_suffix(1);
  if (b.ends_with('.')) b.remove_suffix(1);
  return LowerCase(a) == LowerCase(b);
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
  std::string canonical = RecordOf(plain).canonical;
  return canonical.find('.') != std::string::npos ? canonical : plain;
}

bool IsThisHost(const std::string& host) {
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  const std::string own_name = HostName();
  if (SameName(host, "localhost") || SameName(host, own_name)) return true;
  const Ips theirs = ToIps(RecordOf(host).addresses);
  if (AreHere(theirs)) return true;
  // Behind address translation the machine's name may resolve to an address that no interface has.
  const HostRecord own = RecordOf(own_name);
  return (!own.canonical.empty() && SameName(host, own.canonical)) ||
         Overlap(theirs, ToIps(own.addresses));
}

bool IsHere(const std::string& host) {
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  if (SameName(host, "localhost") || SameName(host, HostName())) return true;
  return AreHere(ToIps(RecordOf(host).addresses));
}

std::string AddressTowards(const Endpoint& peer) {
  const auto addresses = Resolve(peer, Instant{}, Instant{} + kNameLookupMax);
  if (!addresses) return HostName();
  for (const sockaddr_storage& address : *addresses) {
    const OwnedFd fd(socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const bool is_known = fd.is_open() && ConnectSocket(fd.get(), address) == 0;
    const auto own = is_known ? LocalAddress(fd.get()) : std::nullopt;
    if (!own || Ip(*Raw(*own)).IsLoopback()) continue;
    return ToString(BytesOf(*Raw(*own)));
  }
  return HostName();
}

Status CanBeResolved(const std::string& host) {
  constexpr int kAttempts = 10;
  PosixClock clock;
  int outcome = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) clock.SleepUntil(clock.Now() + 500ms);
    if (IsInterrupted())
      return MakeError(Code::kInterrupted, "interrupted while looking up '", host, "'");
    addrinfo* found = nullptr;
    outcome = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (found != nullptr) freeaddrinfo(found);
    if (outcome == 0) return Ok();
    if (outcome != EAI_AGAIN) break;
  }
  return MakeError(Code::kNotFound, "host '", Printable(host),
                   "' is not known: ", gai_strerror(outcome));
}

std::string OwnPath() {
  std::array<char, 4096> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : "";
}

}  // namespace muster
