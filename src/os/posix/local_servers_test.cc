#include "os/posix/local_servers.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <algorithm>
#include <optional>
#include <string>

#include "os/posix/owned_fd.h"
#include "os/posix/tcp_socket.h"
#include "support/machine.h"

namespace muster {
namespace {

/// The test program runs several times at once, so that there are other servers of it.
std::optional<Endpoint> Found(uint16_t port) {
  const std::vector<LocalServer> servers = LocalServers();
  const auto found =
      std::ranges::find(servers, port, [](const LocalServer& server) { return server.at.port; });
  return found == servers.end() ? std::nullopt : std::optional(found->at);
}

void ExpectReachedAt(const std::string& expected, const std::string& host) {
  const auto socket = ListeningSocket::Bind(host, 0);
  ASSERT_TRUE(socket.has_value()) << socket.error().message;
  EXPECT_EQ(Found(socket->port()), std::nullopt) << "nobody accepts its connections";
  const OwnedFd loop(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  ASSERT_EQ(epoll_ctl(loop.get(), EPOLL_CTL_ADD, socket->fd(), &event), 0);
  EXPECT_EQ(Found(socket->port()), (Endpoint{expected, socket->port()})) << host;
}

TEST(LocalServersTest, ASocketIsAServerWhileALoopWatchesIt) {
  ExpectReachedAt("127.0.0.1", "127.0.0.1");
  ExpectReachedAt("127.0.0.2", "127.0.0.2");
  ExpectReachedAt("127.0.0.1", "0.0.0.0");
  ExpectReachedAt("127.0.0.1", "");
}

TEST(LocalServersTest, AnIpv6SocketHasItsAddress) {
  MUSTER_REQUIRE(test::Ipv6Need());
  ExpectReachedAt("::1", "::1");
}

}  // namespace
}  // namespace muster
