// Leases are renewed while etcd's members change their leader.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <string>

#include "etcd/test_client.h"

namespace muster::test {
namespace {

class EtcdRenewalTest : public EtcdTest {
 protected:
  static int LeaderOf(const EtcdCluster& cluster) {
    std::istringstream lines(cluster.Control({"endpoint", "status", "--cluster"}));
    for (std::string line; std::getline(lines, line);) {
      // URL, ID, version, size, whether it leads, ...
      for (int i = 0; i < 3; ++i) {
        if (line.find(cluster.endpoint(i).ToString() + ",") != line.npos &&
            line.find("B, true,") != line.npos)
          return i;
      }
    }
    throw std::runtime_error("no member leads etcd:\n" + lines.str());
  }
};

// A member passes the renewal to its leader, and waits up to 7 s for the answer.
TEST_F(EtcdRenewalTest, MembersThatWaitForALeaderWhichIsGoneAreNotWaitedFor) {
  EtcdCluster cluster({.members = 3});
  const int leader = LeaderOf(cluster);
  EtcdOptions access = cluster.access();
  access.endpoints.erase(access.endpoints.begin() + leader);
  TestClient test_client(access);
  const auto lease = test_client.Grant(10s);
  ASSERT_TRUE(lease) << lease.error().message;
  ASSERT_TRUE(test_client.KeepAlive(lease->id));
  cluster.Signal(leader, SIGSTOP);
  const auto renewed = test_client.KeepAlive(lease->id, 6s);
  EXPECT_TRUE(renewed) << renewed.error().message;
}

}  // namespace
}  // namespace muster::test
