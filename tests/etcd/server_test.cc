// EtcdServer with the real program.
#include "etcd/etcd_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "etcd/test_client.h"
#include "muster/error.h"
#include "support/errors.h"

namespace muster::test {
namespace {

namespace fs = std::filesystem;
using EtcdServerTest = EtcdTest;

EtcdOptions AccessTo(const EtcdServer& server) {
  EtcdOptions access{.endpoints = {}};
  for (const std::string& each : server.endpoints())
    access.endpoints.push_back(ParseRendezvousEndpoint(each, 0));
  return access;
}

bool IsThere(int pid) { return kill(pid, 0) == 0; }

TEST_F(EtcdServerTest, Rdzv159_StartsOnFreePortsServesItsVersionAndIsGoneAfterStop) {
  EtcdServer server;
  EXPECT_TRUE(server.endpoints().empty());
  server.Start();
  ASSERT_EQ(server.endpoints().size(), 1u);
  const std::string endpoint = server.endpoints().front();
  EXPECT_EQ(ParseHostPort(endpoint)->host, "localhost");
  EXPECT_GT(ParseHostPort(endpoint)->port, 0);
  const Ran version = RunCommand({"etcdctl", "--endpoints", endpoint, "endpoint", "status"});
  EXPECT_EQ(version.status, 0) << version.output;
  EXPECT_THAT(version.output, ::testing::HasSubstr(endpoint));
  {
    TestClient test_client(AccessTo(server));
    EXPECT_TRUE(test_client.Put("k", "v"));
  }
  const int pid = server.pids().at(0);
  EXPECT_TRUE(IsThere(pid));
  server.Stop();
  EXPECT_FALSE(IsThere(pid));
  EXPECT_TRUE(server.endpoints().empty());
}

TEST_F(EtcdServerTest, ItCanBeStartedAgain) {
  EtcdServer server;
  server.Start();
  server.Stop();
  server.Start();
  TestClient test_client(AccessTo(server));
  EXPECT_EQ(test_client.Value("k"), "(none)");
}

TEST_F(EtcdServerTest, MembersAreOneCluster) {
  EtcdServer server({.members = 3});
  server.Start();
  EXPECT_EQ(server.endpoints().size(), 3u);
  TestClient test_client(AccessTo(server));
  ASSERT_TRUE(test_client.Put("k", "v"));
  kill(server.pids().at(0), SIGKILL);
  EXPECT_EQ(test_client.Value("k"), "v");
}

TEST_F(EtcdServerTest, ItsDataGoAndWhatElseLiesThereStays) {
  const TempDir dir;
  fs::create_directories(dir.File("data"));
  WriteFile(dir.File("data/mine"), "kept");
  {
    EtcdServer server({.data_dir = dir.File("data")});
    server.Start();
    EXPECT_TRUE(FileExists(dir.File("data/0")));
  }
  EXPECT_FALSE(FileExists(dir.File("data/0")));
  EXPECT_EQ(ReadFile(dir.File("data/mine")), "kept");
}

TEST_F(EtcdServerTest, AFolderThatItMadeGoesWithIt) {
  const TempDir dir;
  {
    EtcdServer server({.data_dir = dir.File("data")});
    server.Start();
  }
  EXPECT_FALSE(FileExists(dir.File("data")));
}

TEST_F(EtcdServerTest, AProgramThatEndsIsQuoted) {
  const TempDir dir;
  WriteFile(dir.File("etcd"),
            "#!/bin/sh\necho flag provided but not defined: no-such-flag\nexit 2\n");
  fs::permissions(dir.File("etcd"), fs::perms::owner_all);
  EtcdServer server({.binary = dir.File("etcd")});
  const std::string why = ErrorOf<std::runtime_error>([&] { server.Start(seconds(20), 0); });
  EXPECT_THAT(why, ::testing::HasSubstr("no-such-flag"));
  EXPECT_THAT(why, ::testing::HasSubstr("exit status"));
  EXPECT_TRUE(server.endpoints().empty());
}

TEST_F(EtcdServerTest, AProgramThatIsNotThereIsNamed) {
  EtcdServer server({.binary = "/no/such/etcd"});
  EXPECT_THAT(ErrorOf<std::runtime_error>([&] { server.Start(seconds(20), 0); }),
              ::testing::HasSubstr("/no/such/etcd"));
}

TEST_F(EtcdServerTest, OneThatDoesNotGetHealthyTimesOut) {
  const TempDir dir;
  WriteFile(dir.File("etcd"), "#!/bin/sh\nexec sleep 60\n");
  fs::permissions(dir.File("etcd"), fs::perms::owner_all);
  EtcdServer server({.binary = dir.File("etcd")});
  EXPECT_THROW(server.Start(milliseconds(300), 1), StoreTimeoutError);
}

TEST_F(EtcdServerTest, AnImpossibleNumberOfMembersIsRefused) {
  EXPECT_THROW(EtcdServer({.members = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace muster::test
