// Whether an endpoint is this machine, without looking up any other name.
#include <gtest/gtest.h>

#include "os/posix/host.h"

namespace muster::test {
namespace {

TEST(HereTest, LoopbackAndTheOwnNameAreHere) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"})
    EXPECT_TRUE(IsHere(host)) << host;
  EXPECT_TRUE(IsHere(HostName()));
}

TEST(HereTest, AddressesOfOthersAreNot) {
  for (const char* host : {"192.0.2.1", "2001:db8::1", "", "no such host"})
    EXPECT_FALSE(IsHere(host)) << host;
}

TEST(HereTest, ALoopbackAddressIsNotGivenToOthers) {
  EXPECT_EQ(AddressTowards({"127.0.0.1", 29400}), HostName());
  EXPECT_EQ(AddressTowards({"no such host", 29400}), HostName());
}

}  // namespace
}  // namespace muster::test
