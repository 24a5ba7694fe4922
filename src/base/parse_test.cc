#include "base/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace muster {
namespace {

using testing::ElementsAre;

TEST(ParseAllTest, ANumberIsAllOfItsText) {
  EXPECT_EQ(ParseAll<int>("-12"), -12);
  EXPECT_EQ(ParseAll<uint64_t>("18446744073709551615"), 18446744073709551615u);
  EXPECT_EQ(ParseAll<double>("1e3"), 1000.0);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x", "99999999999"})
    EXPECT_EQ(ParseAll<int>(text), std::nullopt) << text;
  EXPECT_EQ(ParseAll<uint64_t>("-1"), std::nullopt);
}

TEST(SplitTest, EveryPieceCountsAlsoEmptyOnes) {
  EXPECT_THAT(Split("a,b", ','), ElementsAre("a", "b"));
  EXPECT_THAT(Split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
}

}  // namespace
}  // namespace muster
