#include "store/core/request.h"

#include <gtest/gtest.h>

#include <set>

namespace muster {
namespace {

TEST(OpTest, EveryOperationHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (uint8_t number = 0; number < kOpCount; ++number) names.insert(Name(static_cast<Op>(number)));
  EXPECT_EQ(names.size(), kOpCount);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(OpTest, NamesStandAtTheirOpcodes) {
  EXPECT_EQ(Name(Op::kValidate), "VALIDATE");
  EXPECT_EQ(Name(Op::kGetNumKeys), "GETNUMKEYS");
  EXPECT_EQ(Name(Op::kCancelWait), "CANCEL_WAIT");
  EXPECT_EQ(Name(Op::kBarrier), "BARRIER");
  EXPECT_EQ(Name(static_cast<Op>(kOpCount)), "unknown");
  EXPECT_EQ(Name(static_cast<Op>(255)), "unknown");
}

TEST(ReplyTest, EveryRefusalHasASentence) {
  for (const auto why :
       {Reply::Why::kNotANumber, Reply::Why::kOutOfRange, Reply::Why::kAlreadyParked,
        Reply::Why::kTooMuch, Reply::Why::kNoRoom, Reply::Why::kMisplaced}) {
    EXPECT_FALSE(Describe(why).empty());
    EXPECT_NE(Describe(why), Describe(Reply::Why::kNothing));
  }
}

}  // namespace
}  // namespace muster
