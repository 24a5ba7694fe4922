#include "load/histogram.h"

#include <gtest/gtest.h>

namespace muster::load {
namespace {

TEST(HistogramTest, EmptyHasNoLatency) {
  EXPECT_EQ(Histogram().Percentile(0.99), 0ns);
  EXPECT_EQ(Histogram().count(), 0u);
}

TEST(HistogramTest, PercentilesOfOneSampleAreThatSample) {
  Histogram histogram;
  histogram.Add(123ns);
  EXPECT_EQ(histogram.Percentile(0.0), 123ns);
  EXPECT_EQ(histogram.Percentile(0.5), 123ns);
  EXPECT_EQ(histogram.Percentile(1.0), 123ns);
}

TEST(HistogramTest, PercentilesAreWithinHalfAPercentAtEveryScale) {
  for (int64_t scale = 1; scale < 100'000'000; scale *= 7) {
    Histogram histogram;
    for (int64_t i = 1; i <= 1000; ++i) histogram.Add(Duration(i * scale));
    for (const double fraction : {0.5, 0.9, 0.99, 0.999}) {
      const double truth = fraction * 1000 * static_cast<double>(scale);
      const auto told = static_cast<double>(histogram.Percentile(fraction).count());
      EXPECT_NEAR(told / truth, 1.0, 0.005) << "scale " << scale << ", fraction " << fraction;
    }
  }
}

TEST(HistogramTest, MergedIsAsIfAddedToOne) {
  Histogram one, even, odd;
  for (int64_t i = 0; i < 5000; ++i) {
    one.Add(Duration(i * i), 3);
    (i % 2 == 0 ? even : odd).Add(Duration(i * i), 3);
  }
  even.Merge(odd);
  EXPECT_EQ(even.count(), one.count());
  EXPECT_EQ(even.max(), one.max());
  for (const double fraction : {0.01, 0.5, 0.99}) {
    EXPECT_EQ(even.Percentile(fraction), one.Percentile(fraction));
  }
}

TEST(HistogramTest, LatenciesBeyondTheScaleAreKeptAtItsEnd) {
  Histogram histogram;
  histogram.Add(24h);
  histogram.Add(-1ns);
  EXPECT_EQ(histogram.count(), 2u);
  EXPECT_EQ(histogram.Percentile(0.5), 0ns);
  EXPECT_GT(histogram.Percentile(1.0), 10min);
}

}  // namespace
}  // namespace muster::load
