// Several nodes of any backend, and a check that they agree.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "muster/rendezvous_handler.h"
#include "support/background.h"

namespace muster::test {

using NextCall = Background<RendezvousInfo>;

inline std::unique_ptr<NextCall> Next(RendezvousHandler& node) {
  return std::make_unique<NextCall>([&node] { return node.NextRendezvous(); });
}

/// All of them request the next round at the same time.
template <typename HandlerPtr>
std::vector<RendezvousInfo> NextOfAll(const std::vector<HandlerPtr>& nodes) {
  std::vector<RendezvousInfo> infos(nodes.size());
  InParallel(static_cast<int>(nodes.size()), [&](int index) {
    const auto at = static_cast<size_t>(index);
    infos[at] = nodes[at]->NextRendezvous();
  });
  return infos;
}

/// Ranks 0 to n - 1, the same size, round and master for all.
inline void ExpectAgreement(const std::vector<RendezvousInfo>& infos) {
  std::set<int64_t> ranks;
  for (const RendezvousInfo& info : infos) {
    ranks.insert(info.rank);
    EXPECT_EQ(info.world_size, static_cast<int64_t>(infos.size()));
    EXPECT_EQ(info.round, infos[0].round);
    EXPECT_EQ(info.bootstrap_store_info, infos[0].bootstrap_store_info);
  }
  EXPECT_THAT(ranks, ::testing::SizeIs(infos.size()));
  EXPECT_EQ(*ranks.begin(), 0);
  EXPECT_EQ(*ranks.rbegin(), static_cast<int64_t>(infos.size()) - 1);
}

}  // namespace muster::test
