#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <limits>

namespace muster {
namespace {

using ::testing::ElementsAre;

TEST(ConcatTest, JoinsStringsCharactersAndIntegers) {
  const std::string owned = "ed";
  EXPECT_EQ(
      Concat("key of ", 17, ' ', std::string_view("bytes"), ", limit", owned, ' ', int64_t{-4}),
      "key of 17 bytes, limited -4");
  EXPECT_EQ(Concat(), "");
}

TEST(HexTest, HasAsManyDigitsAsGiven) {
  EXPECT_EQ(Hex(0xab, 2), "ab");
  EXPECT_EQ(Hex(0x12f, 6), "00012f");
  EXPECT_EQ(Hex(std::numeric_limits<uint64_t>::max(), 16), "ffffffffffffffff");
}

TEST(ConcatTest, WritesTheLargestAndSmallestNumbersInFull) {
  EXPECT_EQ(Concat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(Concat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(Concat(uint8_t{255}), "255");
}

TEST(HumanBytesTest, PicksTheLargestUnitThatLeavesAWholeNumber) {
  EXPECT_EQ(HumanBytes(0), "0 bytes");
  EXPECT_EQ(HumanBytes(1), "1 byte");
  EXPECT_EQ(HumanBytes(1023), "1023 bytes");
  EXPECT_EQ(HumanBytes(1024), "1 KiB");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(8 * 1024 * 1024), "8 MiB");
  EXPECT_EQ(HumanBytes(std::numeric_limits<uint64_t>::max()), "15.9 EiB");
}

TEST(ParseCounterTest, SkipsWhiteSpaceAndOneSignAndStopsAtTheFirstNonDigit) {
  EXPECT_EQ(*ParseCounter("12"), 12);
  EXPECT_EQ(*ParseCounter("12abc"), 12);
  EXPECT_EQ(*ParseCounter(" \t\n\v\f\r+7 8"), 7);
  EXPECT_EQ(*ParseCounter("-5"), -5);
  EXPECT_EQ(*ParseCounter("0x10"), 0);
  EXPECT_EQ(*ParseCounter("007"), 7);
  EXPECT_EQ(*ParseCounter(std::string_view("3\0004", 3)), 3);
}

TEST(ParseCounterTest, WithoutDigitsIsInvalid) {
  for (const std::string_view text :
       {"", " ", "abc", "+", "-", "+-5", "-+5", "--5", "- 5", "+ 5", "\v"}) {
    const Result<int64_t> read = ParseCounter(text);
    ASSERT_FALSE(read) << "'" << text << "' was read as " << *read;
    EXPECT_EQ(read.error().code, Code::kInvalid) << text;
  }
}

TEST(ParseCounterTest, BeyondSixtyFourBitsIsOutOfRange) {
  EXPECT_EQ(*ParseCounter("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(*ParseCounter("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  for (const std::string_view text : {"9223372036854775808", "-9223372036854775809",
                                      "+99999999999999999999999", "9223372036854775808x"}) {
    const Result<int64_t> read = ParseCounter(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Code::kOutOfRange) << text;
  }
}

TEST(ParseCounterTest, ErrorQuotesWhatWasStoredOnOneLine) {
  EXPECT_EQ(ParseCounter("a\nb").error().message, "'a\\x0ab' is not a number");
}

// PyTorch's server counts with strtoll; the two must agree on every value that a user may have
// stored.
RC_GTEST_PROP(ParseCounterTest, ReadsWhatStrtollReads, ()) {
  const auto text = *rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::element(' ', '\t', '\n', '\v', '\f', '\r', '+', '-', '0', 'a', '.'),
                     rc::gen::inRange('0', static_cast<char>('9' + 1)), rc::gen::just('9')));
  char* end = nullptr;
  errno = 0;
  const long long expected = std::strtoll(text.c_str(), &end, 10);
  const Result<int64_t> read = ParseCounter(text);
  if (end == text.c_str()) {
    RC_ASSERT(!read);
    RC_ASSERT(read.error().code == Code::kInvalid);
  } else if (errno == ERANGE) {
    RC_ASSERT(!read);
    RC_ASSERT(read.error().code == Code::kOutOfRange);
  } else {
    RC_ASSERT(read.has_value());
    RC_ASSERT(*read == expected);
  }
}

RC_GTEST_PROP(ParseCounterTest, ReadsBackWhateverConcatWrote, (int64_t number)) {
  RC_ASSERT(*ParseCounter(Concat(number)) == number);
}

TEST(LowerCaseTest, ChangesAsciiLettersOnly) {
  EXPECT_EQ(LowerCase("AbZ09[\xc3\x84"), "abz09[\xc3\x84");
}

TEST(ParseBoolTest, KnowsItsWordsAndNoOthers) {
  for (const std::string_view yes : {"1", "True", "T", "yEs", "y"}) EXPECT_EQ(ParseBool(yes), true);
  for (const std::string_view no : {"0", "FALSE", "f", "No", "n"}) EXPECT_EQ(ParseBool(no), false);
  for (const std::string_view other : {"", " 1", "on", "01"})
    EXPECT_EQ(ParseBool(other), std::nullopt);
}

TEST(PrintableTest, LeavesTextAndUtf8AsTheyAre) {
  EXPECT_EQ(Printable("/job/rank 7"), "/job/rank 7");
  EXPECT_EQ(Printable("/größe"), "/größe");
}

TEST(PrintableTest, WritesControlBytesInHex) {
  EXPECT_EQ(Printable(std::string_view("a\0b\n\x1b[31m\x7f", 10)), "a\\x00b\\x0a\\x1b[31m\\x7f");
}

TEST(PrintableTest, WritesWhatIsNoUtf8CharacterInHex) {
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");                               // a control sequence in disguise
  EXPECT_EQ(Printable("\x9b"), "\\x9b");                    // alone
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82");           // cut
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(Printable("\xe2\x82\xac\xf0\x9f\x98\x80"), "\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(PrintableTest, WritesWhatTurnsTextAroundInHex) {
  for (const std::string mark :
       {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069"}) {
    EXPECT_TRUE(Printable(mark).starts_with("\\x")) << Printable(mark);
  }
  EXPECT_EQ(Printable("\u202a"), "\\xe2\\x80\\xaa");
  for (const std::string text : {"\u2027", "\u202f", "\u2065x", "\u206a", "\u05d0\u0627"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(OneLineTest, EscapesAllOfIt) {
  const std::string text = std::string(1000, 'k') + "\n\x1b[2J";
  EXPECT_EQ(OneLine(text), std::string(1000, 'k') + "\\x0a\\x1b[2J");
}

TEST(SeveralLinesTest, KeepsLineEndsAndTabsAlone) {
  EXPECT_EQ(SeveralLines("a\n\tb\r\nc\rd\x1b]52;c;x\x07\n"), "a\n\tb\nc\\x0dd\\x1b]52;c;x\\x07\n");
  EXPECT_EQ(SeveralLines(""), "");
  EXPECT_EQ(SeveralLines("\n"), "\n");
  EXPECT_EQ(SeveralLines(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(PrintableTest, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("a\xe2\x82\xac"
                      "b",
                      2),
            "a\xe2\x82\xac... (5 bytes)");
}

TEST(PrintableTest, CutsLongKeysAndSaysHowLongTheyWere) {
  EXPECT_EQ(Printable(std::string(128, 'k')), std::string(128, 'k'));
  EXPECT_EQ(Printable(std::string(8192, 'k'), 3), "kkk... (8 KiB)");
}

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

TEST(ParseWholeNumberTest, NumbersAreReadAsPythonReadsThem) {
  EXPECT_EQ(ParseWholeNumber(" 2 "), 2);
  EXPECT_EQ(ParseWholeNumber("1_0"), 10);
  EXPECT_EQ(ParseWholeNumber("+7"), 7);
  EXPECT_EQ(ParseWholeNumber("-3"), -3);
  EXPECT_EQ(ParseWholeNumber("007"), 7);
  for (const char* text :
       {"", " ", "a", "1.0", "1__0", "_1", "1_", "+", "- 1", "1 2", "9223372036854775808", "0x10"})
    EXPECT_EQ(ParseWholeNumber(text), std::nullopt) << text;
}

}  // namespace
}  // namespace muster
