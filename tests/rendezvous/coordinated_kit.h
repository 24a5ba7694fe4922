// Nodes of the backend "muster" for tests: a server, and handlers that find it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "muster/coordinated_rendezvous.h"
#include "muster/store_server.h"
#include "support/background.h"

namespace muster::test {

using CoordinatedPtr = std::unique_ptr<CoordinatedRendezvousHandler>;
using NextCall = Background<RendezvousInfo>;

class CoordinatedTest : public ::testing::Test {
 protected:
  CoordinatedTest() : server_(std::make_unique<StoreServer>(AtPort(0))), port_(server_->port()) {}

  static StoreServerOptions AtPort(uint16_t port) {
    return {.host = "127.0.0.1", .port = port, .threads = 2};
  }

  CoordinatedRendezvousOptions Options(int64_t min_nodes, int64_t max_nodes) const {
    return {.host = "127.0.0.1",
            .port = port_,
            .is_host = false,
            .run_id = "run",
            .min_nodes = min_nodes,
            .max_nodes = max_nodes,
            .last_call = milliseconds(100),
            .join_timeout = kPatience,
            .log = [](std::string_view) {}};
  }
  static CoordinatedPtr Node(CoordinatedRendezvousOptions options) {
    return std::make_unique<CoordinatedRendezvousHandler>(std::move(options));
  }
  CoordinatedPtr Node(int64_t min_nodes, int64_t max_nodes) const {
    return Node(Options(min_nodes, max_nodes));
  }
  std::vector<CoordinatedPtr> Nodes(int count, int64_t min_nodes, int64_t max_nodes) const {
    std::vector<CoordinatedPtr> nodes;
    for (int i = 0; i < count; ++i) nodes.push_back(Node(min_nodes, max_nodes));
    return nodes;
  }

  static std::unique_ptr<NextCall> Next(CoordinatedRendezvousHandler& node) {
    return std::make_unique<NextCall>([&node] { return node.NextRendezvous(); });
  }
  /// All of them want the next round, at once.
  static std::vector<RendezvousInfo> NextOfAll(const std::vector<CoordinatedPtr>& nodes) {
    std::vector<RendezvousInfo> infos(nodes.size());
    InParallel(static_cast<int>(nodes.size()), [&](int index) {
      const auto at = static_cast<size_t>(index);
      infos[at] = nodes[at]->NextRendezvous();
    });
    return infos;
  }
  /// Ranks 0 to n - 1; the same size, round and master for all.
  static void ExpectAgreement(const std::vector<RendezvousInfo>& infos) {
    std::set<int64_t> ranks;
    for (const RendezvousInfo& info : infos) {
      ranks.insert(info.rank);
      EXPECT_EQ(info.world_size, static_cast<int64_t>(infos.size()));
      EXPECT_EQ(info.round, infos[0].round);
      EXPECT_EQ(info.bootstrap_store_info, infos[0].bootstrap_store_info);
    }
    EXPECT_THAT(ranks, ::testing::SizeIs(infos.size()));
    EXPECT_EQ(*ranks.begin(), 0);
  }
  /// The next event, which must come.
  static MembershipEvent EventOf(CoordinatedRendezvousHandler& node) {
    return node.AwaitEvent(kPatience).value();
  }
  static bool Says(const CoordinatedRendezvousHandler& node, const std::string& text) {
    return EventuallyTrue(
        [&] { return node.DescribeWait().ToString().find(text) != std::string::npos; });
  }

  std::unique_ptr<StoreServer> server_;
  const uint16_t port_;
};

}  // namespace muster::test
