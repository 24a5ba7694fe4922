#include "base/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(ParseHostPortTest, ReadsNamesLiteralsAndAnEmptyHost) {
  EXPECT_EQ(*ParseHostPort("node-1.example:29500"), (Endpoint{"node-1.example", 29500}));
  EXPECT_EQ(*ParseHostPort("127.0.0.1:0"), (Endpoint{"127.0.0.1", 0}));
  EXPECT_EQ(*ParseHostPort("[::1]:65535"), (Endpoint{"::1", 65535}));
  EXPECT_EQ(*ParseHostPort("[::]:29500"), (Endpoint{"::", 29500}));
  EXPECT_EQ(*ParseHostPort(":29400"), (Endpoint{"", 29400}));
}

TEST(ParseHostPortTest, PortMustBeANumberOfSixteenBits) {
  for (const std::string_view text : {"h:", "h:65536", "h:-1", "h:+1", "h: 1", "h:1 ", "h:http",
                                      "h:1x", "h:99999999999999999999", "[::1]:"}) {
    const Result<Endpoint> read = ParseHostPort(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Code::kInvalid) << text;
    EXPECT_THAT(read.error().message, HasSubstr("the port must be a number from 0 to 65535"))
        << text;
  }
}

TEST(ParseHostPortTest, MissingPortIsNamed) {
  EXPECT_EQ(ParseHostPort("localhost").error().message,
            "'localhost' is not HOST:PORT: the port is missing");
  EXPECT_EQ(ParseHostPort("").error().message, "'' is not HOST:PORT: the port is missing");
}

TEST(ParseHostPortTest, BareIpv6LiteralIsRefusedWithTheRightSpelling) {
  for (const std::string_view text : {"::1:29500", "::1", "fe80::1:80"}) {
    EXPECT_THAT(ParseHostPort(text).error().message, HasSubstr("[ADDRESS]:PORT")) << text;
  }
}

TEST(ParseHostPortTest, UnclosedBracketIsRefused) {
  for (const std::string_view text : {"[::1:29500", "[:1", "[::1]x:1", "[::1]"}) {
    EXPECT_FALSE(ParseHostPort(text)) << text;
  }
}

TEST(ParseHostPortTest, BracketsWithinTheHostAreRefused) {
  for (const std::string_view text : {"[[::1]]:1", "[[a]]:1", "[a]]:1", "a]:1", "a[b]:1", "]:1"}) {
    const Result<Endpoint> read = ParseHostPort(text);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr("brackets")) << text;
  }
}

RC_GTEST_PROP(EndpointTest, ReadsBackWhatItWrote, (uint16_t port)) {
  const auto host =
      *rc::gen::container<std::string>(rc::gen::element('a', 'Z', '0', '9', '.', '-', ':', '_'));
  const Endpoint endpoint{host, port};
  const Result<Endpoint> read = ParseHostPort(endpoint.ToString());
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == endpoint);
}

RC_GTEST_PROP(EndpointTest, AnyTextIsReadOrRefused, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::element('[', ']', ':', '1', 'h', '\0', '\xff'));
  const Result<Endpoint> read = ParseHostPort(text);
  if (!read) RC_ASSERT(read.error().code == Code::kInvalid);
  if (read) RC_ASSERT(ParseHostPort(read->ToString()).value() == *read);
}

}  // namespace
}  // namespace muster
