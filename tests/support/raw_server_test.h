// The fixture of tests that exchange bytes with a StoreServer. Each runs with one and with two loop
// threads: what a client sees must not depend on its loop.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "muster/store_server.h"
#include "support/raw_client.h"

namespace muster::test {

class RawServerTest : public ::testing::TestWithParam<int> {
 protected:
  static StoreServerOptions Options() { return {.host = "127.0.0.1", .threads = GetParam()}; }

  void SetUp() override { Start(Options()); }

  /// Replaces the server that every test begins with by one with other options.
  void Start(const StoreServerOptions& options) {
    witnesses_.clear();
    server_ = std::make_unique<StoreServer>(options);
    // Connections go to the loops in turn: as many as there are loops means one on each.
    for (int i = 0; i < options.threads; ++i) witnesses_.push_back(Client());
  }

  uint16_t port() const { return server_->port(); }
  RawClient Client() const { return RawClient::Validated(port()); }

  /// Returns when every loop of the server has read what was sent before.
  void Settle() {
    for (RawClient& witness : witnesses_) witness.Settle();
  }
  auto Settling() {
    return [this] { Settle(); };
  }

  /// The server still works, for old clients and new ones.
  void ExpectServerIsWell() {
    Settle();
    EXPECT_EQ(Client().SaidSoFar(), "");
  }

 private:
  std::unique_ptr<StoreServer> server_;
  std::vector<RawClient> witnesses_;
};

inline std::string LoopsName(const ::testing::TestParamInfo<int>& info) {
  return info.param == 1 ? "OneLoop" : "TwoLoops";
}

#define MUSTER_ON_ONE_AND_TWO_LOOPS(Suite) \
  INSTANTIATE_TEST_SUITE_P(Loops, Suite, ::testing::Values(1, 2), ::muster::test::LoopsName)

}  // namespace muster::test
