#include "sim/failure_patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace muster::sim {
namespace {

const FailurePattern& Named(std::string_view name) {
  return *std::ranges::find_if(FailurePatterns(),
                               [&](const FailurePattern& each) { return each.name == name; });
}

TEST(FailurePatternsTest, ARackThatComesBackCostsFewerRounds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto at_once = PlayFailures(Named("rack"), {.window = 0s}, seed);
    const auto held = PlayFailures(Named("rack"), {.window = 10s}, seed);
    EXPECT_LT(held.rounds, at_once.rounds) << seed;
  }
}

TEST(FailurePatternsTest, ASingleNodeIsNotHeldBack) {
  const auto at_once = PlayFailures(Named("agent"), {.window = 0s}, 1);
  const auto held = PlayFailures(Named("agent"), {.window = 10s}, 1);
  EXPECT_EQ(held.lost, at_once.lost);
  EXPECT_EQ(held.rounds, 2);
}

TEST(FailurePatternsTest, AMachineThatIsGoneForLongerIsNotHeldBack) {
  const auto at_once = PlayFailures(Named("machine"), {.window = 0s}, 1);
  const auto held = PlayFailures(Named("machine"), {.window = 10s}, 1);
  EXPECT_EQ(held.rounds, 2);
  EXPECT_EQ(held.lost, at_once.lost);
}

}  // namespace
}  // namespace muster::sim
