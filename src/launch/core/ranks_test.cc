#include "launch/core/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;

TEST(AssignRanksTest, Launch071RanksOfUnequalNodesFollowEachOther) {
  const std::vector<NodeRole> nodes = {{"default", 1}, {"default", 2}, {"default", 3}};
  EXPECT_THAT(AssignRanks(nodes), ElementsAre(AssignedRanks{0, 6, 0, 6}, AssignedRanks{1, 6, 1, 6},
                                              AssignedRanks{3, 6, 3, 6}));
}

TEST(AssignRanksTest, Launch072RolesAreCountedEachAndDoNotChangeTheOrder) {
  const std::vector<NodeRole> nodes = {{"trainer", 2}, {"ps", 1}, {"trainer", 3}};
  EXPECT_THAT(AssignRanks(nodes), ElementsAre(AssignedRanks{0, 6, 0, 5}, AssignedRanks{2, 6, 0, 1},
                                              AssignedRanks{3, 6, 2, 5}));
}

TEST(AssignRanksTest, NobodyIsNobody) { EXPECT_TRUE(AssignRanks({}).empty()); }

}  // namespace
}  // namespace muster
