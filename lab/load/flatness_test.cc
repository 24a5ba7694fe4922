#include "load/flatness.h"

#include <gtest/gtest.h>

namespace muster::load {
namespace {

TEST(FlatnessTest, WhatStaysHasNotGrown) {
  EXPECT_EQ(FlatnessOf(std::vector<double>(20, 7))->growth(), 0);
}

TEST(FlatnessTest, WhatGrowsSteadilyShowsByHowMuch) {
  std::vector<double> samples;
  for (int i = 0; i < 100; ++i) samples.push_back(100 + i);
  const Flatness flatness = FlatnessOf(samples).value();
  EXPECT_EQ(flatness.earlier, 130);  // of 120 to 159
  EXPECT_EQ(flatness.later, 170);    // of 160 to 199
  EXPECT_NEAR(flatness.growth(), 0.308, 0.001);
}

TEST(FlatnessTest, TheWarmUpDoesNotCount) {
  std::vector<double> samples(20, 100);
  std::fill_n(samples.begin(), 4, 1);
  EXPECT_EQ(FlatnessOf(samples)->growth(), 0);
}

TEST(FlatnessTest, MemoryThatIsNeededForAMomentDoesNotCount) {
  std::vector<double> samples(20, 100);
  std::fill_n(samples.begin() + 14, 4, 1000);
  EXPECT_EQ(FlatnessOf(samples)->growth(), 0);
}

TEST(FlatnessTest, TooFewSamplesGiveNoResult) {
  EXPECT_FALSE(FlatnessOf({}));
  EXPECT_FALSE(FlatnessOf(std::vector<double>(kFlatnessSamplesMin - 1, 7)));
  EXPECT_TRUE(FlatnessOf(std::vector<double>(kFlatnessSamplesMin, 7)));
}

}  // namespace
}  // namespace muster::load
