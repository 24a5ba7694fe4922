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
  int64_t at_once = 0;
  int64_t held = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    at_once += PlayFailures(Named("rack"), {.window = 0s}, seed).rounds;
    held += PlayFailures(Named("rack"), {.window = 10s}, seed).rounds;
  }
  EXPECT_LE(held + 20, at_once) << "at least one round each time";
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
