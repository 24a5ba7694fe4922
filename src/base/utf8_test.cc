#include "base/utf8.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(EndsOfTest, NoCharacterIsCut) {
  const std::string text =
      "a\xc3\xa4"
      "b\xe2\x82\xac";  // a, two bytes, b, three bytes
  const auto ends = [&](size_t head, size_t tail) {
    const auto [begin, end] = EndsOf(text, head, tail);
    return std::string(begin) + "|" + std::string(end);
  };
  EXPECT_EQ(ends(1, 0), "a|");
  EXPECT_EQ(ends(2, 2), "a|");
  EXPECT_EQ(ends(3, 3), "a\xc3\xa4|\xe2\x82\xac");
  EXPECT_EQ(ends(4, 4),
            "a\xc3\xa4"
            "b|b\xe2\x82\xac");
  EXPECT_EQ(ends(0, 7), "|" + text);
}

}  // namespace
}  // namespace muster
