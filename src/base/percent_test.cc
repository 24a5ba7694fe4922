#include "base/percent.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

TEST(PercentTest, EncodesWhatIsNotPlain) {
  EXPECT_EQ(PercentEncoded("a/b%\xff", &IsLetter), "a%2Fb%25%FF");
  EXPECT_EQ(PercentEncoded("", &IsLetter), "");
}

TEST(PercentTest, DecodesAnyCaseAndRefusesTheRest) {
  EXPECT_EQ(PercentDecoded("a%2fb%2F+"), "a/b/+");
  for (const char* text : {"%", "%2", "a%", "%2x", "%x2", "%+1", "% 1"})
    EXPECT_EQ(PercentDecoded(text), std::nullopt) << text;
}

RC_GTEST_PROP(PercentTest, WhateverIsEncodedIsDecoded, (const std::string& text)) {
  RC_ASSERT(PercentDecoded(PercentEncoded(text, &IsLetter)) == text);
}

}  // namespace
}  // namespace muster
