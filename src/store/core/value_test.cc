#include "store/core/value.h"

#include <gtest/gtest.h>

#include <string>

namespace muster {
namespace {

class ValueTest : public ::testing::Test {
 protected:
  void Append(Value& value, const std::string& text) {
    if (text.size() > kSmallValueBytes) {
      value.Append(MakePiece(text, account_), account_);
    } else {
      value.Append(text, account_);
    }
  }

  MemoryAccount account_;
};

TEST_F(ValueTest, SmallPiecesAreGathered) {
  Value value;
  std::string expected;
  for (size_t i = 0; i < 1'000; ++i) {
    const std::string text(4'097 + i % 7, static_cast<char>('a' + i % 26));
    Append(value, text);
    expected += text;
    ASSERT_EQ(value.size(), expected.size());
  }
  EXPECT_LT(value.view().pieces.size(), 80u);
  EXPECT_EQ(value.view().size(), expected.size());
  EXPECT_TRUE(value.view() == expected);
  EXPECT_EQ(std::string(value.view()), expected);
}

TEST_F(ValueTest, SmallTextsAreGatheredAndLargePiecesAreNotCopied) {
  Value value;
  std::string expected;
  for (size_t i = 0; i < 40'000; ++i) {
    Append(value, "some ten b");
    expected += "some ten b";
  }
  EXPECT_LT(value.view().pieces.size(), 10u);
  const Piece large = MakePiece(std::string(100'000, 'x'), account_);
  value.Append(large, account_);
  expected += large->bytes();
  EXPECT_EQ(value.view().pieces.back(), large);
  EXPECT_EQ(std::string(value.view()), expected);
}

TEST_F(ValueTest, IsDestroyedInPortions) {
  Value value;
  for (int i = 0; i < 10; ++i) Append(value, std::string(100'000, 'x'));
  Append(value, "the tail");
  size_t left = value.size();
  while (value.size() > 0) {
    left -= value.DestroyLast();
    ASSERT_EQ(value.size(), left);
  }
  EXPECT_EQ(account_.used(), 0u);
}

}  // namespace
}  // namespace muster
