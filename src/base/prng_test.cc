#include "base/prng.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <limits>

namespace muster {
namespace {

// SplitMix64's published reference outputs. If they change, every recorded seed of every run is
// worthless.
TEST(PrngTest, GivesTheReferenceSequence) {
  Prng prng(1234567);
  for (const uint64_t expected : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                  4593380528125082431u, 16408922859458223821u}) {
    EXPECT_EQ(prng.Next(), expected);
  }
}

RC_GTEST_PROP(PrngTest, SameSeedGivesTheSameRun, (uint64_t seed)) {
  Prng one(seed), two(seed);
  for (int i = 0; i < 20; ++i) RC_ASSERT(one.Next() == two.Next());
}

RC_GTEST_PROP(PrngTest, BelowStaysBelow, (uint64_t seed)) {
  const auto bound = *rc::gen::oneOf(rc::gen::positive<uint64_t>(), rc::gen::just(uint64_t{1}),
                                     rc::gen::just(std::numeric_limits<uint64_t>::max()));
  Prng prng(seed);
  for (int i = 0; i < 20; ++i) RC_ASSERT(prng.Below(bound) < bound);
}

TEST(PrngTest, BelowReachesEveryValueAboutEquallyOften) {
  Prng prng(8123);
  std::array<int, 10> seen{};
  for (int i = 0; i < 10'000; ++i) ++seen[prng.Below(seen.size())];
  for (const int times : seen) {
    EXPECT_GT(times, 850);
    EXPECT_LT(times, 1150);
  }
}

TEST(PrngDeathTest, BelowZeroIsABug) { EXPECT_DEATH(Prng(1).Below(0), "bound > 0 does not hold"); }

}  // namespace
}  // namespace muster
