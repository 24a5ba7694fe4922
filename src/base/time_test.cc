#include "base/time.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

constexpr Instant kStart{1h};

TEST(InstantTest, AddingADurationMovesItByExactlyThat) {
  EXPECT_EQ((kStart + 30s) - kStart, 30s);
  EXPECT_EQ(kStart + 0s, kStart);
  EXPECT_LT(kStart, kStart + 1ns);
  EXPECT_LT(kStart + -1ns, kStart);
}

TEST(InstantTest, AddingTooMuchIsNeverInsteadOfThePast) {
  EXPECT_EQ(kStart + Duration::max(), Instant::Never());
  EXPECT_EQ(kStart + (Duration::max() - 1h), Instant::Never());
  EXPECT_LT(kStart + (Duration::max() - 1h - 1ns), Instant::Never());
  EXPECT_EQ(Instant::Never() + 1s, Instant::Never());
}

RC_GTEST_PROP(InstantTest, WaitingLongerNeverEndsEarlier, ()) {
  const auto amount = rc::gen::inRange<Duration::rep>(0, Duration::max().count());
  const Instant now{Duration(*amount)};
  const Duration some(*amount), more(*amount);
  RC_ASSERT(now + some >= now);
  RC_ASSERT(((now + some) <=> (now + more)) == (some <=> more) ||
            now + std::max(some, more) == Instant::Never());
}

TEST(DeadlineAfterTest, PositiveTimeoutEndsThatMuchLater) {
  EXPECT_EQ(DeadlineAfter(kStart, 250ms), kStart + 250ms);
}

TEST(DeadlineAfterTest, ZeroAndNegativeTimeoutsHaveNoLimit) {
  EXPECT_EQ(DeadlineAfter(kStart, 0ms), Instant::Never());
  EXPECT_EQ(DeadlineAfter(kStart, -1ms), Instant::Never());
  EXPECT_EQ(DeadlineAfter(kStart, std::chrono::milliseconds::min()), Instant::Never());
}

TEST(DeadlineAfterTest, TimeoutBeyondTheClockHasNoLimit) {
  EXPECT_EQ(DeadlineAfter(kStart, std::chrono::milliseconds::max()), Instant::Never());
  EXPECT_EQ(DeadlineAfter(kStart, 24h * 365 * 293), Instant::Never());
}

}  // namespace
}  // namespace muster
