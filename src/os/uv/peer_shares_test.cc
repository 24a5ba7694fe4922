#include "os/uv/peer_shares.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <optional>

namespace muster {
namespace {

PeerGroup V4(const char* text) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
  return GroupOf(storage);
}

PeerGroup V6(const char* text) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  return GroupOf(storage);
}

TEST(PeerGroupTest, AnAddressIsTheSameOverBothProtocols) {
  EXPECT_EQ(V4("10.1.2.3"), V6("::ffff:10.1.2.3"));
  EXPECT_NE(V4("10.1.2.3"), V4("10.1.2.4"));
  EXPECT_EQ(NameOf(V4("10.1.2.3")), "10.1.2.3");
}

TEST(PeerGroupTest, AMachineWithManyIpv6AddressesIsOne) {
  EXPECT_EQ(V6("2001:db8::1"), V6("2001:db8::2:3"));
  EXPECT_NE(V6("2001:db8::1"), V6("2001:db8:0:1::1"));
  EXPECT_EQ(NameOf(V6("2001:db8::1")), "2001:db8::/64");
}

TEST(PeerSharesTest, TheLargestIsWhoHoldsMostNow) {
  const auto shares = std::make_shared<PeerShares>();
  EXPECT_EQ(shares->FindLargest().held, 0u);
  const PeerHold one(shares, V4("10.0.0.1"));
  {
    const PeerHold two(shares, V4("10.0.0.2"));
    const PeerHold three(shares, V4("10.0.0.2"));
    EXPECT_EQ(shares->FindLargest().from, V4("10.0.0.2"));
    EXPECT_EQ(shares->FindLargest().held, 2u);
    EXPECT_EQ(shares->FindLargest().total, 3u);
    EXPECT_EQ(shares->HeldBy(V4("10.0.0.1")), 1u);
    EXPECT_EQ(shares->HeldBy(V4("10.0.0.3")), 0u);
  }
  EXPECT_EQ(shares->FindLargest().from, V4("10.0.0.1"));
  EXPECT_EQ(shares->FindLargest().total, 1u);
}

TEST(PeerSharesTest, AHoldThatMovedCountsOnce) {
  const auto shares = std::make_shared<PeerShares>();
  {
    PeerHold first(shares, V4("10.0.0.1"));
    const PeerHold second(std::move(first));
    EXPECT_EQ(shares->FindLargest().held, 1u);
  }
  EXPECT_EQ(shares->FindLargest().total, 0u);
}

}  // namespace
}  // namespace muster
