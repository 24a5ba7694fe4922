// Options as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>

#include "muster/rendezvous_parameters.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

std::string RefusalOf(std::string_view text) {
  return ErrorOf<std::invalid_argument>([&] { ParseRendezvousConfig(text); });
}

}  // namespace

TEST(RendezvousConfigTest, Rdzv175ReadsPairsAroundBlanksAndDividesAtTheFirstEqualsSign) {
  const RendezvousConfig expected = {
      {"a", "dummy1"}, {"b", "dummy2"}, {"c", "dummy3=dummy4"}, {"d", "dummy5/dummy6"}};
  EXPECT_EQ(ParseRendezvousConfig(" b= dummy2  ,c=dummy3=dummy4,  a =dummy1,d=dummy5/dummy6"),
            expected);
  EXPECT_EQ(ParseRendezvousConfig(""), RendezvousConfig{});
  EXPECT_EQ(ParseRendezvousConfig(" \t\n"), RendezvousConfig{});
}

TEST(RendezvousConfigTest, Rdzv176RejectsItemsWithoutANameOrWithoutAValue) {
  for (const char* text : {"a=dummy1,", "a=dummy1,,c=dummy2", "a=dummy1, = ,c=dummy2", " ,  ", ",",
                           "=", "=x", ",a=1"}) {
    EXPECT_THAT(RefusalOf(text), AllOf(HasSubstr("no option name"), HasSubstr("k1=v1,k2=v2")))
        << text;
  }
  for (const char* text : {"b=dummy1,a,c=dummy2", "a=", "a", " a = ", "a=1,a="}) {
    EXPECT_THAT(RefusalOf(text), AllOf(HasSubstr("option 'a'"), HasSubstr("no value"))) << text;
  }
}

TEST(RendezvousConfigTest, NamesTheWrongItem) {
  EXPECT_THAT(RefusalOf("a=1,b=2,=3"), HasSubstr("Item 3"));
  EXPECT_THAT(RefusalOf("a=1,b"), HasSubstr("item 2"));
}

TEST(RendezvousConfigTest, ALaterDuplicateWins) {
  EXPECT_EQ(ParseRendezvousConfig("a=1,b=2,a=3"), (RendezvousConfig{{"a", "3"}, {"b", "2"}}));
}

TEST(RendezvousConfigTest, KeepsBlanksInsideAndEveryValueAsText) {
  EXPECT_EQ(ParseRendezvousConfig("a b = c  d ,n=1,t=true"),
            (RendezvousConfig{{"a b", "c  d"}, {"n", "1"}, {"t", "true"}}));
}

RC_GTEST_PROP(RendezvousConfigTest, ReadsBackWhatWasWritten, ()) {
  const auto key = rc::gen::nonEmpty(
      rc::gen::container<std::string>(rc::gen::element('a', 'B', '9', '_', '/', '\xff')));
  const auto value = rc::gen::nonEmpty(
      rc::gen::container<std::string>(rc::gen::element('a', '=', '9', '/', ':', '\x01')));
  const auto pairs = *rc::gen::container<std::map<std::string, std::string>>(key, value);
  const auto blanks = [] {
    return *rc::gen::container<std::string>(rc::gen::element(' ', '\t', '\n'));
  };
  std::string text;
  RendezvousConfig expected;
  for (const auto& [name, content] : pairs) {
    if (!text.empty()) text += ',';
    text += blanks() + name + blanks() + '=' + blanks() + content + blanks();
    expected.emplace(name, content);
  }
  RC_ASSERT(ParseRendezvousConfig(text) == expected);
}

RC_GTEST_PROP(RendezvousConfigTest, AnyTextIsReadOrRefused, ()) {
  const auto text = *rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::element(',', '=', ' ', 'a'), rc::gen::arbitrary<char>()));
  try {
    for (const auto& [name, value] : ParseRendezvousConfig(text)) {
      RC_ASSERT(!name.empty());
      RC_ASSERT(!std::get<std::string>(value).empty());
    }
  } catch (const std::invalid_argument&) {
  }
}

}  // namespace muster::test
