// Many clients connect while the server's process is stopped, until all are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "support/bytes.h"
#include "support/process_limits.h"
#include "support/raw_socket.h"
#include "support/server_process.h"

namespace muster::test {

namespace {

/// Begins to connect and does not wait for it.
RawSocket Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS) {
    ADD_FAILURE() << "connect: " << std::strerror(errno);
  }
  return RawSocket(fd);
}

}  // namespace

TEST(CrowdTest, Item121_FourThousandThatConnectBeforeAnyIsAcceptedAreServedInTime) {
  constexpr int kClients = 4096;
  ASSERT_GE(RaiseDescriptorLimit(), rlim_t{kClients + 200});
  ServerProcess server({.host = "127.0.0.1", .threads = 2});
  ASSERT_EQ(kill(server.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(server.pid(), &status, WUNTRACED), server.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  const Stopwatch watch;
  std::vector<RawSocket> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(Connect(server.port()));
  ASSERT_EQ(kill(server.pid(), SIGCONT), 0);
  for (int i = 0; i < kClients; ++i) {
    RawSocket& client = clients[static_cast<size_t>(i)];
    client.Send(ValidateBytes() + PingBytes(static_cast<uint32_t>(i)));
  }
  for (int i = 0; i < kClients; ++i) {
    ASSERT_EQ(clients[static_cast<size_t>(i)].Receive(4), U32(static_cast<uint32_t>(i))) << i;
  }
  // A client with a timeout of kPatience is served.
  EXPECT_LT(watch.Elapsed(), kPatience);
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace muster::test
