#include "base/flat_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace muster::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ProblemOf(FlatJsonReader& in) {
  const Status outcome = in.Outcome();
  return outcome ? "" : outcome.error().message;
}

TEST(FlatJsonTest, WritesWhatIsThere) {
  FlatJsonWriter out;
  out.Text("text", "a \"b\"\n").Number("number", -7).Truth("truth", true);
  out.Texts("texts", {"x", ""}).Text("none", "").Number("usual", 5, 5).Truth("no", false);
  out.Texts("nobody", {});
  EXPECT_EQ(out.Take(),
            R"({"text": "a \"b\"\n", "number": -7, "truth": true, "texts": ["x", ""]})");
  EXPECT_EQ(FlatJsonWriter().Take(), "{}");
}

TEST(FlatJsonTest, ReadsItBack) {
  FlatJsonReader in("key", R"( { "text":"\u00e9" , "n": 12, "t": true, "f":false, "l": ["a","b"],
                               "unknown": "x", "empty": [] } )");
  EXPECT_EQ(in.Text("text"), "\xc3\xa9");
  EXPECT_EQ(in.Number("n"), 12);
  EXPECT_EQ(in.NumberWithin("n", 12, 12), 12);
  EXPECT_EQ(in.Number("missing", -1), -1);
  EXPECT_TRUE(in.Truth("t"));
  EXPECT_FALSE(in.Truth("f"));
  EXPECT_THAT(in.Texts("l"), ElementsAre("a", "b"));
  EXPECT_THAT(in.Texts("empty"), IsEmpty());
  EXPECT_THAT(in.Texts("missing"), IsEmpty());
  EXPECT_EQ(ProblemOf(in), "");
}

TEST(FlatJsonTest, SaysWhatIsWrongAndWhere) {
  const auto problem = [](std::string_view json) {
    FlatJsonReader in("/some/key", json);
    return ProblemOf(in);
  };
  for (const char* json :
       {"", "x", "{", "{}x", "{\"a\"}", "{\"a\": }", "{\"a\": 1,}", "{\"a\": tru}", "{,}"})
    EXPECT_THAT(problem(json), HasSubstr("/some/key: byte ")) << json;
  for (const char* json : {"[]", "null", "1", "\"a\""})
    EXPECT_THAT(problem(json), HasSubstr("/some/key: the text is ")) << json;
  for (const char* value : {"{}", "[1]", "[true]", "[null]", "[[]]", "[{}]", "null", "1.5", "1e3",
                            "9223372036854775808", "-9223372036854775809"})
    EXPECT_THAT(problem(std::string("{\"a\": ") + value + "}"), HasSubstr("/some/key: 'a' "))
        << value;
  EXPECT_EQ(problem("{\"a\": [1]}"), "/some/key: 'a' contains a number");
  EXPECT_EQ(problem("{\"a\": null}"), "/some/key: 'a' is null");
}

TEST(FlatJsonTest, ReadsEveryEscapeSequenceAndPlainUtf8) {
  const auto text = [](const std::string& quoted) {
    return FlatJsonReader("key", "{\"a\": " + quoted + "}").Text("a");
  };
  EXPECT_EQ(text(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(text(R"("\u00E4\u20ac\uD83D\uDE00")"), "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(text("\"\xc3\xa4\x7f\xf4\x8f\xbf\xbf\""), "\xc3\xa4\x7f\xf4\x8f\xbf\xbf");
  EXPECT_EQ(text(R"("\u0000")"), std::string(1, '\0'));
}

TEST(FlatJsonTest, RefusesBrokenStrings) {
  const auto problem = [](const std::string& quoted) {
    FlatJsonReader in("key", "{\"a\": " + quoted + "}");
    return ProblemOf(in);
  };
  EXPECT_THAT(problem(R"("\x")"), HasSubstr("forbidden character after backslash"));
  EXPECT_THAT(problem(R"("\u12g4")"), HasSubstr("followed by 4 hex digits"));
  EXPECT_THAT(problem(R"("\u+123")"), HasSubstr("followed by 4 hex digits"));
  EXPECT_THAT(problem(R"("\ud800")"), HasSubstr("must be followed by U+DC00"));
  EXPECT_THAT(problem(R"("\ud800\ud800")"), HasSubstr("must be followed by U+DC00"));
  EXPECT_THAT(problem(R"("\udc00")"), HasSubstr("must follow U+D800"));
  EXPECT_THAT(problem("\"a\nb\""), HasSubstr("control character"));
  for (const char* bytes : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    EXPECT_THAT(problem(std::string("\"") + bytes + "\""), HasSubstr("UTF-8"));
  EXPECT_THAT(problem(std::string(100'000, '[')), HasSubstr("'a' contains a list"));
}

TEST(FlatJsonTest, AnotherKindIsAProblem) {
  const auto problem = [](auto read) {
    FlatJsonReader in("key", R"({"n": 1, "t": "x"})");
    read(in);
    return ProblemOf(in);
  };
  EXPECT_EQ(problem([](auto& in) { in.Text("n"); }), "key: 'n' is not a text");
  EXPECT_EQ(problem([](auto& in) { in.Number("t"); }), "key: 't' is not an integer");
  EXPECT_EQ(problem([](auto& in) { in.Truth("t"); }), "key: 't' is not true or false");
  EXPECT_EQ(problem([](auto& in) { in.Texts("t"); }), "key: 't' is not a list of texts");
  EXPECT_EQ(problem([](auto& in) { in.NumberWithin("n", 2, 3); }),
            "key: 'n' is 1; 2 to 3 are allowed");
  EXPECT_EQ(problem([](auto& in) { in.NumberWithin("z", 2, 3); }), "key: 'z' is missing");
}

RC_GTEST_PROP(FlatJsonTest, WhateverIsWrittenIsRead, ()) {
  const auto number = *rc::gen::arbitrary<int64_t>();
  const auto texts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127)));
  FlatJsonWriter out;
  out.Number("number", number).Texts("texts", texts);
  const std::string json = out.Take();
  FlatJsonReader in("key", json);
  RC_ASSERT(in.Number("number") == number);
  RC_ASSERT(in.Texts("texts") == texts);
  RC_ASSERT(in.Outcome().has_value());
}

RC_GTEST_PROP(FlatJsonTest, AnythingCanBeGiven, (const std::string& anything)) {
  FlatJsonReader in("key", anything);
  in.Text("a");
  in.Texts("b");
  static_cast<void>(in.Outcome());
}

}  // namespace
}  // namespace muster::wire
