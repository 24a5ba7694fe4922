// RendezvousParameters: refusals, and how options are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/text.h"
#include "muster/rendezvous_parameters.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

RendezvousParameters With(ConfigValue value) {
  return {"c10d", "localhost:0", "run", 1, 1, "", {{"option", std::move(value)}}};
}

RendezvousParameters WithNothing() { return {"c10d", "localhost:0", "run", 1, 1}; }

std::string RefusalOfNodes(int64_t min_nodes, int64_t max_nodes) {
  return ErrorOf<std::invalid_argument>(
      [&] { RendezvousParameters("c10d", "localhost:0", "run", min_nodes, max_nodes); });
}

std::string RefusalAsBool(ConfigValue value) {
  return ErrorOf<std::invalid_argument>([&] { With(value).GetAsBool("option"); });
}

std::string RefusalAsInt(ConfigValue value) {
  return ErrorOf<std::invalid_argument>([&] { With(value).GetAsInt("option"); });
}

}  // namespace

TEST(RendezvousParametersTest, Rdzv001RejectsAnEmptyBackendBeforeAnythingElse) {
  const std::string message =
      ErrorOf<std::invalid_argument>([] { RendezvousParameters("", "localhost:0", "run", 0, -1); });
  EXPECT_THAT(message, AllOf(HasSubstr("backend"), HasSubstr("empty")));
}

TEST(RendezvousParametersTest, Rdzv002RejectsAMinimumBelowOneAndQuotesIt) {
  for (const int64_t min_nodes : {0, -1, -5}) {
    EXPECT_THAT(RefusalOfNodes(min_nodes, min_nodes - 1),
                AllOf(HasSubstr("minimum"), HasSubstr(Concat("is ", min_nodes, '.'))));
  }
}

TEST(RendezvousParametersTest, Rdzv003RejectsAMaximumBelowTheMinimumAndQuotesBoth) {
  EXPECT_THAT(RefusalOfNodes(7, 6),
              AllOf(HasSubstr("maximum"), HasSubstr("(6)"), HasSubstr("(7)")));
  EXPECT_THAT(RefusalOfNodes(1, -3), AllOf(HasSubstr("(-3)"), HasSubstr("(1)")));
}

TEST(RendezvousParametersTest, Rdzv004AcceptsAMinimumOfOneAndAMinimumThatIsTheMaximum) {
  EXPECT_EQ(RendezvousParameters("c10d", "", "", 1, 4).max_nodes, 4);
  EXPECT_EQ(RendezvousParameters("c10d", "", "", 3, 3).min_nodes, 3);
}

TEST(RendezvousParametersTest, Rdzv005ReturnsOptionsAsTheyWereGivenOrElseTheFallback) {
  const RendezvousParameters parameters("c10d", "host:1", "run", 1, 2, "10.0.0.1",
                                        {{"text", "x"}, {"number", int64_t{3}}, {"none", {}}});
  EXPECT_EQ(parameters.local_addr, "10.0.0.1");
  EXPECT_EQ(parameters.Get("text"), ConfigValue("x"));
  EXPECT_EQ(parameters.Get("number"), ConfigValue(int64_t{3}));
  EXPECT_EQ(parameters.Get("missing"), std::nullopt);
  EXPECT_EQ(parameters.Get("missing", "fallback"), ConfigValue("fallback"));
  EXPECT_EQ(parameters.Get("text", "fallback"), ConfigValue("x"));
  EXPECT_EQ(parameters.Get("none", "fallback"), ConfigValue(std::monostate{}));
}

TEST(RendezvousParametersTest, Rdzv006ReadsTheWordsForTrue) {
  for (const char* word : {"1", "True", "tRue", "T", "t", "yEs", "Y"}) {
    EXPECT_EQ(With(word).GetAsBool("option"), true) << word;
  }
  EXPECT_EQ(With(int64_t{1}).GetAsBool("option"), true);
  EXPECT_EQ(With(true).GetAsBool("option"), true);
}

TEST(RendezvousParametersTest, Rdzv007ReadsTheWordsForFalse) {
  for (const char* word : {"0", "False", "faLse", "F", "f", "nO", "N"}) {
    EXPECT_EQ(With(word).GetAsBool("option"), false) << word;
  }
  EXPECT_EQ(With(int64_t{0}).GetAsBool("option"), false);
  EXPECT_EQ(With(false).GetAsBool("option"), false);
}

TEST(RendezvousParametersTest, Rdzv008RejectsOtherWordsAsBooleanAndNamesTheOption) {
  for (const char* word : {"01", "Flse", "Ture", "g", "4", "_", "truefalse", "", " true", "true ",
                           "on", "off", "tru", "\xc5\xa4"}) {
    EXPECT_THAT(RefusalAsBool(word), AllOf(HasSubstr("'option'"), HasSubstr("not a boolean"),
                                           HasSubstr(Concat("'", std::string_view(word), "'"))));
  }
  for (const int64_t number : {2, -1}) {
    EXPECT_THAT(RefusalAsBool(number), AllOf(HasSubstr("'option'"), HasSubstr(Concat(number))));
  }
  EXPECT_THAT(RefusalAsBool(1.0), HasSubstr("'option'"));
}

TEST(RendezvousParametersTest, Rdzv009GivesNoneOrTheFallbackForAMissingOption) {
  EXPECT_EQ(WithNothing().GetAsBool("option"), std::nullopt);
  EXPECT_EQ(WithNothing().GetAsBool("option", true), true);
  EXPECT_EQ(WithNothing().GetAsBool("option", false), false);
  EXPECT_EQ(WithNothing().GetAsInt("option"), std::nullopt);
  EXPECT_EQ(WithNothing().GetAsInt("option", 5), 5);
}

TEST(RendezvousParametersTest, Rdzv010ReadsIntegersFromTextAndNumbers) {
  const auto read = [](ConfigValue value) { return With(std::move(value)).GetAsInt("option"); };
  EXPECT_EQ(read("0"), 0);
  EXPECT_EQ(read("-10"), -10);
  EXPECT_EQ(read("5"), 5);
  EXPECT_EQ(read("  4"), 4);
  EXPECT_EQ(read("4  "), 4);
  EXPECT_EQ(read(" 4 "), 4);
  EXPECT_EQ(read(int64_t{0}), 0);
  EXPECT_EQ(read(int64_t{-4}), -4);
  EXPECT_EQ(read(int64_t{3}), 3);
  EXPECT_EQ(read("+7"), 7);
  EXPECT_EQ(read("\t-0012\n"), -12);
  EXPECT_EQ(read("1_000_000"), 1'000'000);
  EXPECT_EQ(read(true), 1);
  EXPECT_EQ(read(false), 0);
  EXPECT_EQ(read(2.9), 2);
  EXPECT_EQ(read(-2.9), -2);
  EXPECT_EQ(read("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(read("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(read(-9223372036854775808.0), std::numeric_limits<int64_t>::min());
}

TEST(RendezvousParametersTest, Rdzv011RejectsWhatIsNoIntegerAndNamesTheOption) {
  for (const char* text : {"a",    "0a",  "3b",  "abc", "",    "0x10", "1.5",
                           " ",    "+",   "-",   "+-1", "- 1", "_1",   "1_",
                           "1__0", "-_1", "1 2", "1e3", "_",   "1,",   "9223372036854775808"}) {
    EXPECT_THAT(RefusalAsInt(text), AllOf(HasSubstr("'option'"), HasSubstr("not an integer"),
                                          HasSubstr(Concat("'", std::string_view(text), "'"))));
  }
  for (const double number : {std::nan(""), HUGE_VAL, -HUGE_VAL, 9223372036854775808.0, 1e300}) {
    EXPECT_THAT(RefusalAsInt(number), HasSubstr("'option' is not an integer"));
  }
}

TEST(RendezvousParametersTest, Rdzv012GivesNoneForAnOptionStoredAsNoneWhateverTheFallback) {
  EXPECT_EQ(With(std::monostate{}).GetAsBool("option", true), std::nullopt);
  EXPECT_EQ(With(std::monostate{}).GetAsInt("option", 5), std::nullopt);
}

TEST(RendezvousParametersTest, ARefusalStaysOnOneLineAndShort) {
  EXPECT_THAT(RefusalAsInt("a\nb"), HasSubstr("'a\\x0ab'"));
  EXPECT_LT(RefusalAsInt(std::string(1'000'000, 'x')).size(), 400u);
}

RC_GTEST_PROP(RendezvousParametersTest, ReadsEveryIntegerFromItsText, (int64_t number)) {
  RC_ASSERT(With(Concat(' ', number, "\t")).GetAsInt("option") == number);
}

// Underscores may stand between any two digits, and nowhere else.
RC_GTEST_PROP(RendezvousParametersTest, ReadsIntegersWithUnderscoresOnlyBetweenDigits, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::element('0', '7', '9', '_'));
  RC_PRE(text.size() < 18);
  const bool valid = !text.empty() && text.front() != '_' && text.back() != '_' &&
                     text.find("__") == std::string::npos;
  if (!valid) {
    RC_ASSERT_THROWS_AS(With(text).GetAsInt("option"), std::invalid_argument);
    return;
  }
  std::string digits = text;
  std::erase(digits, '_');
  RC_ASSERT(With(text).GetAsInt("option") == std::stoll(digits));
}

}  // namespace muster::test
