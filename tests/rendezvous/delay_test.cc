#include "muster/delay.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <stdexcept>

namespace muster::test {
namespace {

using std::chrono::milliseconds;

milliseconds Took(auto delay) {
  const auto began = std::chrono::steady_clock::now();
  delay();
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began);
}

TEST(DelayTest, LastsAtLeastAsLongAsRequested) {
  EXPECT_GE(Took([] { Delay(milliseconds(30)); }), milliseconds(30));
}

TEST(DelayTest, LessThanTenMillisecondsIsNotWorthASleep) {
  // Ten thousand of them would take a minute and a half.
  EXPECT_LT(Took([] {
              for (int i = 0; i < 10'000; ++i) Delay(milliseconds(9));
            }),
            milliseconds(30'000));
}

TEST(DelayTest, IsDrawnBetweenTheTwo) {
  std::set<milliseconds> drawn;
  for (int i = 0; i < 12; ++i) {
    const milliseconds took = Took([] { Delay(milliseconds(10), milliseconds(40)); });
    EXPECT_GE(took, milliseconds(10));
    drawn.insert(took);
  }
  EXPECT_GT(drawn.size(), 1u);
}

TEST(DelayTest, TheOtherWayRoundIsRefused) {
  EXPECT_THROW(Delay(milliseconds(40), milliseconds(10)), std::invalid_argument);
}

}  // namespace
}  // namespace muster::test
