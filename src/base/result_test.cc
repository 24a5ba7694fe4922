#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace muster {
namespace {

const Error kLate{Code::kTimeout, "node-3: nothing for 30 s"};

TEST(ResultTest, HoldsAValueOrAnError) {
  const Result<int> good = 7;
  const Result<int> bad = kLate;
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, 7);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kTimeout);
  EXPECT_EQ(bad.error().message, "node-3: nothing for 30 s");
}

TEST(ResultTest, AFalseLookingValueIsStillAValue) {
  const Result<int> zero = 0;
  const Result<std::string> empty = std::string();
  EXPECT_TRUE(zero);
  EXPECT_TRUE(empty);
}

TEST(ResultTest, MoveOnlyValuesCanBeTakenOut) {
  Result<std::unique_ptr<int>> held = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(held);
  EXPECT_EQ(*taken, 7);
}

TEST(ResultTest, ArrowReachesIntoTheValue) {
  Result<std::vector<int>> list = std::vector<int>{1, 2};
  list->push_back(3);
  EXPECT_EQ(list->size(), 3u);
}

TEST(ResultTest, OkIsASuccessfulStatus) {
  EXPECT_TRUE(Ok());
  EXPECT_FALSE(Status(kLate));
}

Result<int> Doubled(const Result<int>& from) {
  MUSTER_TRY(const int value, from);
  return 2 * value;
}

Status Twice(const Status& first, const Status& second, int& passed) {
  MUSTER_CHECK_OK(first);
  ++passed;
  MUSTER_CHECK_OK(second);
  ++passed;
  return Ok();
}

TEST(MusterTryTest, NamesTheValueOrReturnsTheError) {
  EXPECT_EQ(*Doubled(21), 42);
  EXPECT_EQ(Doubled(kLate).error().message, kLate.message);
}

TEST(MusterTryTest, TwoMayStandInOneFunctionAndAssignToSomethingThatExists) {
  const auto sum = [](const Result<int>& a, const Result<int>& b) -> Result<int> {
    int total = 0;
    MUSTER_TRY(total, a);
    MUSTER_TRY(const int more, b);
    return total + more;
  };
  EXPECT_EQ(*sum(1, 2), 3);
  EXPECT_FALSE(sum(1, kLate));
}

TEST(MusterCheckOkTest, ReturnsAtTheFirstError) {
  int passed = 0;
  EXPECT_TRUE(Twice(Ok(), Ok(), passed));
  EXPECT_EQ(passed, 2);
  EXPECT_FALSE(Twice(Ok(), kLate, passed));
  EXPECT_EQ(passed, 3);
}

// Asking for the wrong half is our own bug: it must stop the process, also in release builds.
TEST(ResultDeathTest, ValueOfAnErrorAborts) {
  const Result<int> bad = kLate;
  EXPECT_DEATH(static_cast<void>(bad.value()), "muster: bug: has_value\\(\\) does not hold");
}

TEST(ResultDeathTest, ErrorOfAValueAborts) {
  const Result<int> good = 7;
  EXPECT_DEATH(static_cast<void>(good.error()), "muster: bug: !has_value\\(\\) does not hold");
}

}  // namespace
}  // namespace muster
