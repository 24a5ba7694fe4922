// Nodes of the backend "muster" for tests: a server, and handlers that find it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/coordinated_rendezvous.h"
#include "muster/store_server.h"
#include "rendezvous/agreement.h"

namespace muster::test {

using CoordinatedPtr = RendezvousHandlerPtr;

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
    return CreateCoordinatedHandler(std::move(options));
  }
  CoordinatedPtr Node(int64_t min_nodes, int64_t max_nodes) const {
    return Node(Options(min_nodes, max_nodes));
  }
  std::vector<CoordinatedPtr> Nodes(int count, int64_t min_nodes, int64_t max_nodes) const {
    std::vector<CoordinatedPtr> nodes;
    for (int i = 0; i < count; ++i) nodes.push_back(Node(min_nodes, max_nodes));
    return nodes;
  }

  /// The next event, which must come.
  static MembershipEvent EventOf(RendezvousHandler& node) {
    return node.AwaitEvent(kPatience).value();
  }
  static bool Says(const RendezvousHandler& node, const std::string& text) {
    return EventuallyTrue(
        [&] { return node.DescribeWait().ToString().find(text) != std::string::npos; });
  }

  std::unique_ptr<StoreServer> server_;
  const uint16_t port_;
};

}  // namespace muster::test
