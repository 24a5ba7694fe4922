#include "load/whole_round.h"

#include <gtest/gtest.h>

namespace muster::load {
namespace {

struct Assignment {
  int64_t rank;
  int64_t world_size = 3;
  int64_t round = 7;
};

bool IsWhole(const std::vector<Assignment>& assignments) {
  std::vector<Push> pushes;
  for (const auto& [rank, world_size, round] : assignments) {
    pushes.push_back(
        {.kind = Push::Kind::kComplete, .round = round, .rank = rank, .world_size = world_size});
  }
  std::vector<const Push*> pointers;
  for (const Push& push : pushes) pointers.push_back(&push);
  return IsWholeRound(pointers);
}

TEST(WholeRoundTest, EveryRankIsThereOnceInAnyOrder) { EXPECT_TRUE(IsWhole({{2}, {0}, {1}})); }

TEST(WholeRoundTest, ARankThatIsThereTwiceOrMissingOrOutsideIsFound) {
  EXPECT_FALSE(IsWhole({{0}, {1}, {1}}));
  EXPECT_FALSE(IsWhole({{0}, {1}, {3}}));
  EXPECT_FALSE(IsWhole({{0}, {1}, {-1}}));
}

TEST(WholeRoundTest, TheWorldIsAsLargeAsThereAreNodes) {
  EXPECT_FALSE(IsWhole({{0}, {1}}));
  EXPECT_FALSE(IsWhole({{0}, {1}, {2, 4}}));
}

TEST(WholeRoundTest, AllAreInOneRound) { EXPECT_FALSE(IsWhole({{0}, {1}, {2, 3, 6}})); }

TEST(WholeRoundTest, AnEmptyListIsNoRound) { EXPECT_FALSE(IsWhole({})); }

}  // namespace
}  // namespace muster::load
