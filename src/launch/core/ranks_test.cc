#include "launch/core/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(RankWordsTest, Launch073TheWordsAreThoseOfPyTorchsAgents) {
  EXPECT_EQ(RoleInfoKey(7), "torchelastic/role_info/7");
  EXPECT_EQ(AssignedRanksKey(0), "torchelastic/assigned_ranks/0");
  EXPECT_EQ(ToJson(NodeRole{"trainer", 2}, 1),
            R"({"role": "trainer", "rank": 1, "local_world_size": 2})");
  EXPECT_EQ(ToJson(NodeRole{"trainer", 2, "train.py"}, 1),
            R"({"role": "trainer", "rank": 1, "local_world_size": 2, "entry_point": "train.py"})");
  EXPECT_EQ(ToJson(AssignedRanks{2, 6, 0, 1}), "[2, 6, 0, 1]");
}

TEST(RankWordsTest, WhatIsWrittenIsRead) {
  const NodeRole role{"p\"s\\ \xc3\xa4", 3, "\"\xc3\xa4.py"};
  const auto read = ParseNodeRole(ToJson(role, 4));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->role, role.role);
  EXPECT_EQ(read->workers, 3);
  EXPECT_EQ(read->entry_point, role.entry_point);
  const AssignedRanks ranks{3, 6, 2, 5};
  EXPECT_EQ(*ParseAssignedRanks(ToJson(ranks)), ranks);
}

TEST(RankWordsTest, WhatNobodyCanMeanIsRefused) {
  for (const char* said :
       {"", "{}", "[]", "null", "{\"role\": 1, \"local_world_size\": 2}", "{\"role\": \"a\"}",
        "{\"role\": \"a\", \"local_world_size\": 0}", "{\"role\": \"a\", \"local_world_size\": -1}",
        "{\"role\": \"a\", \"local_world_size\": 1.5}",
        "{\"role\": \"a\", \"local_world_size\": 9223372036854775807}"}) {
    const auto read = ParseNodeRole(said);
    ASSERT_FALSE(read.has_value()) << said;
    EXPECT_THAT(read.error().message, HasSubstr("a node has sent")) << said;
  }
  for (const char* said :
       {"", "{}", "[1, 2, 3]", "[0, 0, 0, 0]", "[2, 2, 0, 1]", "[-1, 2, 0, 1]", "[0, 2, 0, 3]",
        "[0, 2, 1, 1]", "[0, 1e3, 0, 1]", "[0, 9223372036854775807, 0, 1]", "[0, 1, 0, 1, 0]"}) {
    EXPECT_FALSE(ParseAssignedRanks(said).has_value()) << said;
  }
}

}  // namespace
}  // namespace muster
