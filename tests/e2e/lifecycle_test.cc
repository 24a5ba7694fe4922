// Servers that start, share, collide and end; clients that find them, or do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/machine.h"
#include "support/raw_client.h"

namespace muster::test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using StorePtr = std::shared_ptr<TcpStore>;

namespace {

// A loopback address that nothing else on the machine uses: between two servers on one port, no
// other test can take the port.
const std::string kQuietAddress = "127.0.0.2";

StoreServerOptions OnLoopback(uint16_t port = 0) {
  return {.host = "127.0.0.1", .port = port, .threads = 1};
}

StorePtr Connect(uint16_t port, const std::string& host = "127.0.0.1") {
  return std::make_shared<TcpStore>(host, TcpStoreOptions{.port = port, .timeout = kPatience});
}

/// A store with its own server.
StorePtr Serve(uint16_t port, bool multi_tenant = false) {
  return std::make_shared<TcpStore>("127.0.0.1",
                                    TcpStoreOptions{.port = port,
                                                    .is_server = true,
                                                    .timeout = kPatience,
                                                    .multi_tenant = multi_tenant,
                                                    .server = {.host = "127.0.0.1", .threads = 1}});
}

}  // namespace

TEST(ServerLifecycleTest, Item100_PortZeroBecomesARealPort) {
  const StoreServer server(OnLoopback());
  EXPECT_NE(server.port(), 0);
  EXPECT_EQ(server.address(), "127.0.0.1:" + std::to_string(server.port()));
  const StorePtr store = Connect(server.port());
  store->Set("k", "v");
  EXPECT_EQ(store->Get("k"), "v");
}

TEST(ServerLifecycleTest, Item100_AStoreWithItsOwnServerReturnsTheRealPort) {
  const StorePtr store = Serve(0);
  EXPECT_NE(store->port(), 0);
  EXPECT_TRUE(store->is_server());
  EXPECT_EQ(store->host(), "127.0.0.1");
  const StorePtr client = Connect(store->port());
  EXPECT_FALSE(client->is_server());
  client->Set("k", "v");
  EXPECT_EQ(store->Get("k"), "v");
}

TEST(ServerLifecycleTest, Item100_APortMayBeUsedAgainAtOnce) {
  StoreServerOptions options{.host = kQuietAddress, .threads = 1};
  for (int i = 0; i < 20; ++i) {
    const StoreServer server(options);
    options.port = server.port();
    EXPECT_EQ(Connect(server.port(), kQuietAddress)->Add("n", 1), 1);  // nothing was kept
  }
}

TEST(ServerLifecycleTest, Item101_ASecondServerOnThePortIsRefused) {
  const StoreServer server(OnLoopback());
  const std::string pattern =
      "^The server socket has failed to listen on any local .*" + std::to_string(server.port());
  EXPECT_THAT(ErrorOf<NetworkError>([&] { const StoreServer second(OnLoopback(server.port())); }),
              ContainsRegex(pattern));
  EXPECT_THAT(ErrorOf<NetworkError>([&] { Serve(server.port()); }), ContainsRegex(pattern));
  EXPECT_EQ(RawClient::Validated(server.port()).SaidSoFar(), "");  // the first one is unaffected
}

TEST(ServerLifecycleTest, Item101_AlsoOnAllInterfaces) {
  const StoreServer server({.threads = 1});
  EXPECT_THROW(const StoreServer second({.port = server.port(), .threads = 1}), NetworkError);
}

TEST(ServerLifecycleTest, Item102_TenantsOfOneProcessShareOneServer) {
  StorePtr first = Serve(0, true);
  StorePtr second = Serve(first->port(), true);
  EXPECT_TRUE(second->is_server());
  first->Set("k", "shared");
  EXPECT_EQ(second->Get("k"), "shared");
  const uint16_t port = first->port();
  first.reset();
  EXPECT_EQ(second->Get("k"), "shared");
  EXPECT_EQ(Connect(port)->Get("k"), "shared");
  second.reset();
  EXPECT_THROW(RawClient client(port), std::runtime_error);  // the last one ended it
}

TEST(ServerLifecycleTest, Item102_AServerThatIsNotSharedIsNotFound) {
  const StoreServer alone(OnLoopback());
  EXPECT_THROW(StoreServer::Shared(OnLoopback(alone.port())), NetworkError);
}

TEST(ServerLifecycleTest, Item102_SharedServersOnPortZeroAreDifferent) {
  const auto one = StoreServer::Shared(OnLoopback());
  const auto other = StoreServer::Shared(OnLoopback());
  EXPECT_NE(one->port(), other->port());
  EXPECT_EQ(StoreServer::Shared(OnLoopback(one->port())), one);
}

TEST(ServerLifecycleTest, Item102_ASharedServerThatEndedIsRestarted) {
  StoreServerOptions options{.host = kQuietAddress, .threads = 1};
  auto server = StoreServer::Shared(options);
  options.port = server->port();
  EXPECT_EQ(Connect(options.port, kQuietAddress)->Add("n", 1), 1);
  server.reset();
  server = StoreServer::Shared(options);
  EXPECT_EQ(Connect(options.port, kQuietAddress)->Add("n", 1), 1);
}

TEST(ServerLifecycleTest, Item104_ABoundSocketHandedInIsUsed) {
  const BoundSocket bound = BindLoopback();
  const StoreServer server({.listen_fd = bound.fd, .threads = 1});
  EXPECT_EQ(server.port(), bound.port);
  EXPECT_EQ(RawClient::Validated(bound.port).SaidSoFar(), "");
}

TEST(ServerLifecycleTest, Item104_AListeningSocketHandedInIsUsed) {
  const BoundSocket bound = BindLoopback();
  ASSERT_EQ(listen(bound.fd, 16), 0);
  RawClient early(bound.port);  // waits in the backlog
  const StoreServer server({.port = bound.port, .listen_fd = bound.fd, .threads = 1});
  early.Send(ValidateBytes());
  EXPECT_EQ(early.SaidSoFar(), "");
}

TEST(ServerLifecycleTest, Item104_ThroughAStoreToo) {
  const BoundSocket bound = BindLoopback();
  const TcpStore store("127.0.0.1", {.port = bound.port,
                                     .is_server = true,
                                     .timeout = kPatience,
                                     .server = {.listen_fd = bound.fd, .threads = 1}});
  EXPECT_EQ(store.port(), bound.port);
  EXPECT_EQ(RawClient::Validated(bound.port).SaidSoFar(), "");
}

TEST(ServerLifecycleTest, Item104_ASocketWithAnotherPortIsAnError) {
  const BoundSocket bound = BindLoopback();
  const uint16_t other = bound.port == 1024 ? 1025 : 1024;
  const std::string text = ErrorOf<DistError>(
      [&] { const StoreServer server({.port = other, .listen_fd = bound.fd, .threads = 1}); });
  EXPECT_THAT(text, HasSubstr(std::to_string(bound.port)));
  EXPECT_THAT(text, HasSubstr(std::to_string(other)));
}

TEST(ServerLifecycleTest, Item104_WhatIsNoSocketIsAnError) {
  EXPECT_THROW(const StoreServer server({.listen_fd = 1'000'000, .threads = 1}), DistError);
  EXPECT_THROW(const StoreServer server({.listen_fd = dup(STDERR_FILENO), .threads = 1}),
               DistError);
}

TEST(ServerLifecycleTest, Item105_OneServerIsReachedByIpv4Ipv6AndName) {
  const StoreServer server({.threads = 2});  // all interfaces, which is what makes it dual
  Connect(server.port(), "127.0.0.1")->Set("k", "v");
  EXPECT_EQ(Connect(server.port(), "localhost")->Get("k"), "v");
  MUSTER_REQUIRE(Ipv6Need());
  EXPECT_EQ(Connect(server.port(), "::1")->Get("k"), "v");
  EXPECT_EQ(RawClient::Validated(server.port(), Family::kIpv6).AskBlob(GetBytes("/k")), "v");
}

TEST(ServerLifecycleTest, Item105_AServerOnIpv6Only) {
  MUSTER_REQUIRE(Ipv6Need());
  const StoreServer server({.host = "::1", .threads = 1});
  EXPECT_EQ(server.address(), "[::1]:" + std::to_string(server.port()));
  EXPECT_EQ(Connect(server.port(), "::1")->Add("n", 1), 1);
}

TEST(ServerLifecycleTest, Item105_AServerWithAnAddressListensOnlyThere) {
  MUSTER_REQUIRE(Ipv6Need());
  const StoreServer server(OnLoopback());
  EXPECT_THROW(RawClient client(server.port(), Family::kIpv6), std::runtime_error);
}

TEST(ServerLifecycleTest, Item106_AClientWaitsForItsServer) {
  const BoundSocket bound = BindLoopback();  // connections are refused until a server listens
  Background<StorePtr> connecting([&] { return Connect(bound.port); });
  ASSERT_TRUE(connecting.UntilBlocked());
  EXPECT_FALSE(connecting.IsDone());
  const StoreServer server({.listen_fd = bound.fd, .threads = 1});
  EXPECT_EQ(connecting.Result()->Add("n", 1), 1);
}

TEST(ServerLifecycleTest, Item107_NoListenerIsAnErrorInTime) {
  constexpr milliseconds kTimeout(4'000);
  const BoundSocket bound = BindLoopback();
  const Stopwatch watch;
  const std::string text = ErrorOf<NetworkError>(
      [&] { const TcpStore store("127.0.0.1", {.port = bound.port, .timeout = kTimeout}); });
  const milliseconds took = watch.Elapsed();
  close(bound.fd);
  EXPECT_THAT(text,
              HasSubstr("The client socket has timed out after 4000ms while trying to connect to "
                        "(127.0.0.1, " +
                        std::to_string(bound.port) + ")"));
  EXPECT_GE(took, kTimeout * 9 / 10);  // a server may come at the last moment
  EXPECT_LT(took, kTimeout * 12 / 10);
}

TEST(ServerLifecycleTest, Item108_ANameThatCannotBeResolvedIsAnErrorInTime) {
  // Every resolver refuses a label of 64 characters without a query.
  const std::string name = std::string(64, 'x') + ".invalid";
  const Stopwatch watch;
  const std::string text = ErrorOf<NetworkError>(
      [&] { const TcpStore store(name, {.port = 29500, .timeout = milliseconds(1'000)}); });
  EXPECT_THAT(text, ContainsRegex("client socket has timed out after.*" + name));
  EXPECT_LT(watch.Elapsed(), milliseconds(10'000));
}

TEST(ServerLifecycleTest, Item112_ClientsThatComeAndGoDisturbNoOthers) {
  const StoreServer server({.host = "127.0.0.1", .threads = 2});
  RawClient bystander = RawClient::Validated(server.port());
  bystander.Send(WaitBytes({"/never"}));
  const std::string half = SetBytes("/half", "a value").substr(0, 12);
  for (int i = 0; i < 400; ++i) {
    RawClient guest(server.port());
    if (i % 4 > 0) guest.Send(ValidateBytes());
    if (i % 4 > 1) guest.Send(WaitBytes({"/k"}));
    if (i % 4 > 2) guest.Send(half);
    if (i % 3 == 0) {
      guest.CloseAbruptly();
    } else {
      guest.Close();
    }
    ASSERT_EQ(bystander.SaidSoFar(), "");
  }
  EXPECT_EQ(bystander.AskNumber(NumKeysBytes()), 0);
}

TEST(ServerLifecycleTest, Item100_InvalidOptionsAreNamed) {
  const auto text = [](const StoreServerOptions& options) {
    return ErrorOf<std::invalid_argument>([&] { const StoreServer server(options); });
  };
  EXPECT_THAT(text({.threads = -1}), HasSubstr("threads"));
  EXPECT_THAT(text({.key_bytes_max = 0}), HasSubstr("key_bytes_max"));
  EXPECT_THAT(text({.value_bytes_max = 0}), HasSubstr("value_bytes_max"));
  EXPECT_THAT(text({.keys_per_request_max = 0}), HasSubstr("keys_per_request_max"));
  EXPECT_THAT(text({.request_bytes_max = 0}), HasSubstr("request_bytes_max"));
  EXPECT_THAT(text({.reply_bytes_max = 0}), HasSubstr("reply_bytes_max"));
  EXPECT_THAT(text({.queued_reply_bytes_max = 0}), HasSubstr("queued_reply_bytes_max"));
  EXPECT_THAT(text({.handshake_max = milliseconds(0)}), HasSubstr("handshake_max"));
  EXPECT_THAT(text({.stall_max = milliseconds(-1)}), HasSubstr("stall_max"));
}

TEST(ServerLifecycleTest, Item107_AClientCannotConnectToPortZero) {
  EXPECT_THROW(const TcpStore store("127.0.0.1", {.port = 0}), std::invalid_argument);
}

// torchrun's workers learn from the environment that the agent serves their store already.
class AgentStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Announce("1", std::to_string(agent_.port()), "127.0.0.1"); }
  void TearDown() override {
    for (const char* name : {"TORCHELASTIC_USE_AGENT_STORE", "MASTER_PORT", "MASTER_ADDR"})
      unsetenv(name);
  }
  static void Announce(const std::string& use, const std::string& port, const std::string& host) {
    setenv("TORCHELASTIC_USE_AGENT_STORE", use.c_str(), 1);
    setenv("MASTER_PORT", port.c_str(), 1);
    setenv("MASTER_ADDR", host.c_str(), 1);
  }

  const StoreServer agent_{OnLoopback()};
};

TEST_F(AgentStoreTest, Item103_TheAgentsStoreIsUsedInsteadOfAServerOfOnesOwn) {
  const StorePtr store = Serve(agent_.port());
  EXPECT_FALSE(store->is_server());
  store->Set("k", "v");
  EXPECT_EQ(Connect(agent_.port())->Get("k"), "v");
}

TEST_F(AgentStoreTest, Item103_TheClientDoesNotWaitForWorkers) {
  const TcpStore store("127.0.0.1", {.port = agent_.port(),
                                     .world_size = 5,
                                     .is_server = true,
                                     .timeout = kPatience,
                                     .server = {.host = "127.0.0.1"}});
  EXPECT_FALSE(store.is_server());
}

TEST_F(AgentStoreTest, Item103_AllSpellingsOfTrueCount) {
  for (const char* spelling : {"1", "y", "YES", "t", "True", "TRUE"}) {
    Announce(spelling, std::to_string(agent_.port()), "127.0.0.1");
    EXPECT_FALSE(Serve(agent_.port())->is_server()) << spelling;
  }
}

TEST_F(AgentStoreTest, Item103_WithoutTheVariableAConflictIsAnError) {
  for (const char* spelling : {"0", "", "no", "false"}) {
    Announce(spelling, std::to_string(agent_.port()), "127.0.0.1");
    EXPECT_THROW(Serve(agent_.port()), NetworkError) << spelling;
  }
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_THROW(Serve(agent_.port()), NetworkError);
}

TEST_F(AgentStoreTest, Item103_AConflictOnAnotherEndpointIsAnError) {
  Announce("1", "1", "127.0.0.1");
  EXPECT_THROW(Serve(agent_.port()), NetworkError);
  Announce("1", std::to_string(agent_.port()), "somewhere.else");
  EXPECT_THROW(Serve(agent_.port()), NetworkError);
}

TEST_F(AgentStoreTest, Item103_AFreePortIsServedAnyway) { EXPECT_TRUE(Serve(0)->is_server()); }

}  // namespace muster::test
