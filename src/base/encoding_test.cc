#include "base/encoding.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <utility>
#include <vector>

namespace muster {
namespace {

TEST(Base64Test, EncodesTheStandardExamples) {
  const std::vector<std::pair<std::string, std::string>> examples = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"},
      {"\xfb\xff", "+/8="},
  };
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(Base64Encode(bytes), text);
    EXPECT_EQ(Base64Decode(text).value(), bytes);
  }
}

TEST(Base64Test, ReadsTheNullSentinel) {
  EXPECT_EQ(Base64Decode("Y2FuaW1hZGFt").value(), "canimadam");
}

TEST(Base64Test, SkipsWhatIsNotInTheAlphabet) {
  EXPECT_EQ(Base64Decode("YQ==\n").value(), "a");
  EXPECT_EQ(Base64Decode("####").value(), "");
  EXPECT_EQ(Base64Decode(" Zm\r\n9v-").value(), "foo");
  EXPECT_EQ(Base64Decode(std::string("Zm\0\xff"
                                     "9v",
                                     6))
                .value(),
            "foo");
}

TEST(Base64Test, StopsAtThePadding) {
  EXPECT_EQ(Base64Decode("YQ==YQ==").value(), "a");
  EXPECT_EQ(Base64Decode("YQ=#=").value(), "a");
  EXPECT_EQ(Base64Decode("====Zm9v").value(), "foo");
  EXPECT_EQ(Base64Decode("YW=I=").value(), "ab");
}

TEST(Base64Test, RefusesWrongPadding) {
  for (const char* text : {"non_base64", "YQ", "YQ=", "Y", "Y===", "Zm9vY", "YW=IxY"}) {
    const auto read = Base64Decode(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Code::kInvalid);
  }
}

RC_GTEST_PROP(Base64Test, ReadsBackWhatItWrote, (const std::vector<uint8_t>& content)) {
  const std::string bytes(content.begin(), content.end());
  const std::string text = Base64Encode(bytes);
  RC_ASSERT(text.size() == (bytes.size() + 2) / 3 * 4);
  RC_ASSERT(Base64Decode(text).value() == bytes);
}

RC_GTEST_PROP(Base64Test, AnyTextIsReadOrRefused, (const std::string& text)) {
  const auto read = Base64Decode(text);
  if (read) RC_ASSERT(read->size() <= text.size() / 4 * 3 + 3);
}

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
