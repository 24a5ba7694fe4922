// Endpoints as users write them, and this machine as its network sees it.
#include "muster/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/tcp_store.h"
#include "store/free_socket.h"
#include "support/errors.h"
#include "support/eventually.h"
#include "support/machine.h"
#include "support/raw_socket.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

constexpr int kDefault = 777;

std::string ErrorFor(std::string_view endpoint) {
  return ErrorOf<std::invalid_argument>([&] { ParseRendezvousEndpoint(endpoint, kDefault); });
}

std::string OwnName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string ToText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  }
  return text;
}

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> texts;
  ifaddrs* list = nullptr;
  getifaddrs(&list);
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr) continue;
    if (item->ifa_addr->sa_family == AF_INET || item->ifa_addr->sa_family == AF_INET6)
      texts.push_back(ToText(item->ifa_addr));
  }
  freeifaddrs(list);
  return texts;
}

std::string OwnCanonicalName() {
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(OwnName().c_str(), nullptr, &hints, &list) != 0) return "";
  std::string name = list->ai_canonname == nullptr ? "" : list->ai_canonname;
  freeaddrinfo(list);
  return name;
}

bool CanBind(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  sockaddr_storage address{};
  auto& v4_address = reinterpret_cast<sockaddr_in&>(address);
  auto& v6_address = reinterpret_cast<sockaddr_in6&>(address);
  address.ss_family = static_cast<sa_family_t>(v6 ? AF_INET6 : AF_INET);
  inet_pton(address.ss_family, host.c_str(),
            v6 ? static_cast<void*>(&v6_address.sin6_addr) : &v4_address.sin_addr);
  (v6 ? v6_address.sin6_port : v4_address.sin_port) = htons(port);
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address),
                          v6 ? sizeof v6_address : sizeof v4_address) == 0;
  close(fd);
  return bound;
}

}  // namespace

TEST(EndpointTest, Rdzv173_NothingIsLocalhost) {
  const HostAndPort expected{"localhost", kDefault};
  for (const char* text : {"", " ", "   ", "\n", " \t\r\n"}) {
    EXPECT_EQ(ParseRendezvousEndpoint(text, kDefault), expected) << text;
  }
}

TEST(EndpointTest, Rdzv173_HostsAndPortsAreTakenAsWritten) {
  struct Row {
    std::string text;
    HostAndPort result;
  };
  const std::vector<Row> rows = {
      {"dummy.com", {"dummy.com", kDefault}},
      {"dummy-1.com", {"dummy-1.com", kDefault}},
      {"123.123.123.123", {"123.123.123.123", kDefault}},
      {"dummy.com:0", {"dummy.com", 0}},
      {"dummy.com:123", {"dummy.com", 123}},
      {"dummy.com:65535", {"dummy.com", 65535}},
      {"dummy-1.com:123", {"dummy-1.com", 123}},
      {"123.123.123.123:123", {"123.123.123.123", 123}},
      {" dummy.com:80 ", {"dummy.com", 80}},
      {"dummy.com:80\n", {"dummy.com", 80}},
      {"dummy.com:00080", {"dummy.com", 80}},
      {"[2001:db8::1]", {"2001:db8::1", kDefault}},
      {"[2001:db8::1]:123", {"2001:db8::1", 123}},
      {"[host]:5", {"host", 5}},
      {"[host]", {"host", kDefault}},
      // Without brackets the last colon is the port's, as in PyTorch.
      {"2001:db8::1", {"2001:db8:", 1}},
      {"::1", {":", 1}},
      {"a:b:123", {"a:b", 123}},
      {"a_b:1", {"a_b", 1}},
      {"-host:1", {"-host", 1}},
      {"..:1", {"..", 1}},
      {"999.999.999.999:1", {"999.999.999.999", 1}},
      {"m\xc3\xbcnchen:1", {"m\xc3\xbcnchen", 1}},
      {"\xe6\x9d\xb1\xe4\xba\xac:1", {"\xe6\x9d\xb1\xe4\xba\xac", 1}},
  };
  for (const Row& row : rows) {
    const HostAndPort parsed = ParseRendezvousEndpoint(row.text, kDefault);
    EXPECT_EQ(parsed.host, row.result.host) << row.text;
    EXPECT_EQ(parsed.port, row.result.port) << row.text;
  }
}

TEST(EndpointTest, Rdzv173_TheDefaultPortMayBeNoPort) {
  EXPECT_EQ(ParseRendezvousEndpoint("host", -1).port, -1);
}

TEST(EndpointTest, Rdzv173_APortIsOneToFiveDigitsBelow65536) {
  for (const char* text :
       {"dummy.com:65536", "dummy.com:70000", "dummy.com:99999", "dummy.com:000080", "dummy.com:",
        "dummy.com:abc", "dummy.com:-123", "dummy.com:-", "dummy.com:+1", "dummy.com: 80",
        "dummy.com:\xef\xbc\x98\xef\xbc\x90", "[2001:db8::1]:", "2001:db8::ab", "~:x"}) {
    EXPECT_THAT(ErrorFor(text), AllOf(HasSubstr("integer between 0 and 65535"),
                                      HasSubstr("'" + std::string(text) + "'")))
        << text;
  }
}

TEST(EndpointTest, Rdzv173_AHostIsANameOrAnAddress) {
  for (const char* text : {"~", "~:123", ":123", "dummy.com :123", "a b:1", "[", "[]", "[]:80",
                           "[::1", "::1]:80", "http://host:1", "host/path:1", "[a]:[b]"}) {
    EXPECT_THAT(ErrorFor(text), AllOf(HasSubstr("list of labels or an IP address"),
                                      HasSubstr("'" + std::string(text) + "'")))
        << text;
  }
}

TEST(EndpointTest, Rdzv173_ControlCharactersAndBrokenTextAreNoHost) {
  for (const std::string_view text :
       {std::string_view("dummy.com\n:123"), std::string_view("a\0b:1", 5),
        std::string_view("a\xff:1"), std::string_view("a\xc3:1"), std::string_view("\x80:1")}) {
    EXPECT_THAT(ErrorFor(text), HasSubstr("list of labels or an IP address"));
  }
}

TEST(EndpointTest, Rdzv174_APortIsDigitsAndNothingElse) {
  EXPECT_EQ(TryParsePort("123"), 123);
  EXPECT_EQ(TryParsePort("0"), 0);
  EXPECT_EQ(TryParsePort("99999"), 99999);
  for (const char* text : {"", " ", "  123  ", "123 ", " 123", "abc", "12a", "-1", "+1", "123456",
                           "1\n", "\xef\xbc\x98"}) {
    EXPECT_EQ(TryParsePort(text), std::nullopt) << text;
  }
}

TEST(ThisMachineTest, Rdzv177_LoopbackIsThisMachine) {
  for (const char* host :
       {"localhost", "LocalHost", "localhost.", "127.0.0.1", "127.1.2.3", "::1", "0:0:0:0:0:0:0:1",
        "0000:0000:0000:0000:0000:0000:0000:0001", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(MatchesThisMachine(host)) << host;
  }
}

TEST(ThisMachineTest, Rdzv177_ItsNamesAreThisMachine) {
  EXPECT_TRUE(MatchesThisMachine(OwnName()));
  EXPECT_TRUE(MatchesThisMachine(FullyQualifiedName()));
  if (!OwnCanonicalName().empty()) {
    EXPECT_TRUE(MatchesThisMachine(OwnCanonicalName()));
  }
  std::string upper = OwnName();
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_TRUE(MatchesThisMachine(upper));
}

TEST(ThisMachineTest, Rdzv177_EveryAddressOfEveryInterfaceIsThisMachine) {
  ASSERT_FALSE(OwnAddresses().empty());
  for (const std::string& address : OwnAddresses()) {
    EXPECT_TRUE(MatchesThisMachine(address)) << address;
    if (address.find(':') == std::string::npos) {
      EXPECT_TRUE(MatchesThisMachine("::ffff:" + address)) << address;
    }
  }
}

TEST(ThisMachineTest, Rdzv177_OthersAreNotThisMachine) {
  for (const char* host : {"dummy", "0.0.0.0", "::2", "::", "", "198.51.100.1", "a b"}) {
    EXPECT_FALSE(MatchesThisMachine(host)) << host;
  }
  EXPECT_FALSE(MatchesThisMachine(std::string("127.0.0.1\0x", 11)));
}

TEST(ThisMachineTest, TheFullNameHasADomainOrIsTheHostName) {
  const std::string name = FullyQualifiedName();
  EXPECT_TRUE(name == OwnName() || name.find('.') != std::string::npos) << name;
}

TEST(FreePortTest, APortThatIsHeldIsFreeForNoOtherOnAnyAddress) {
  const ListeningSocket socket = FreeSocket();
  EXPECT_NE(socket.port(), 0);
  EXPECT_FALSE(CanBind("127.0.0.1", socket.port()));
  EXPECT_FALSE(CanBind("0.0.0.0", socket.port()));
  MUSTER_REQUIRE(Ipv6Need());
  EXPECT_FALSE(CanBind("::1", socket.port()));
}

TEST(FreePortTest, ThePortComesBackWithTheSocket) {
  uint16_t port = 0;
  int fd = -1;
  {
    ListeningSocket socket = FreeSocket();
    port = socket.port();
    fd = socket.fd();
    const ListeningSocket moved(std::move(socket));
    EXPECT_EQ(moved.fd(), fd);
    EXPECT_EQ(moved.port(), port);
    EXPECT_FALSE(CanBind("127.0.0.1", port));
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(FreePortTest, AFreePortIsOneThatCouldBeBound) {
  // Repeatedly: between the two calls, another process may have got the same port.
  EXPECT_TRUE(EventuallyTrue([] { return CanBind("127.0.0.1", FreePort()); }));
}

TEST(FreePortTest, AServerTakesTheSocketOver) {
  ListeningSocket socket = FreeSocket();
  const uint16_t port = socket.port();
  const TcpStore store(
      "127.0.0.1",
      {.port = port, .is_server = true, .server = {.listen_fd = socket.Release(), .threads = 1}});
  EXPECT_EQ(socket.fd(), -1);
  EXPECT_EQ(store.port(), port);
}

}  // namespace muster::test
