// Options of an etcd cluster as users write them. No etcd is needed to read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/etcd.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

RendezvousParameters Parameters(std::string endpoint, RendezvousConfig config = {}) {
  return {"etcd-v2", std::move(endpoint), "run", 1, 1, "127.0.0.1", std::move(config)};
}

std::string Refusal(std::string_view text) {
  return ErrorOf<std::invalid_argument>([&] { EtcdOptions::Parse(text); });
}

std::string Refusal(const RendezvousParameters& parameters) {
  return ErrorOf<std::invalid_argument>([&] { EtcdOptions::From(parameters); });
}

}  // namespace

TEST(EtcdOptionsTest, AllWaysToWriteEndpointsAreRead) {
  const std::vector<HostAndPort> two = {{"h1", 2379}, {"h2", 2380}};
  for (const char* text : {"h1,h2:2380", "etcd://h1:2379,h2:2380", "http://h1,h2:2380/",
                           "http://h1:2379,http://h2:2380", " ETCD://h1 , h2:2380 "}) {
    const EtcdOptions options = EtcdOptions::Parse(text);
    EXPECT_EQ(options.endpoints, two) << text;
    EXPECT_FALSE(options.tls) << text;
    EXPECT_EQ(options.prefix, "") << text;
  }
  EXPECT_THAT(EtcdOptions::Parse("[::1]:2380,[fe80::1]").endpoints,
              ElementsAre(HostAndPort{"::1", 2380}, HostAndPort{"fe80::1", 2379}));
  EXPECT_EQ(EtcdOptions::Parse("etcd://h1:2379,h2/x").ToString(), "etcd at h1:2379,h2:2379");
}

TEST(EtcdOptionsTest, NothingIsTheUsualPlace) {
  for (const char* text : {"", " ", "etcd://", "etcd:///some/where"}) {
    EXPECT_THAT(EtcdOptions::Parse(text).endpoints, ElementsAre(HostAndPort{"localhost", 2379}))
        << text;
  }
  EXPECT_EQ(EtcdOptions::Parse("etcd:///some/where").prefix, "/some/where");
  EXPECT_TRUE(EtcdOptions::Parse("https://").tls);
}

TEST(EtcdOptionsTest, APrefixAUserAndTlsAreRead) {
  const EtcdOptions options = EtcdOptions::Parse("https://me:p%40ss:w%2Ford@h1,h2:1/a/b%20c//");
  EXPECT_TRUE(options.tls);
  EXPECT_EQ(options.user, "me");
  EXPECT_EQ(options.password, "p@ss:w/ord");
  EXPECT_EQ(options.prefix, "/a/b c");
  EXPECT_THAT(options.endpoints, ElementsAre(HostAndPort{"h1", 2379}, HostAndPort{"h2", 1}));
}

TEST(EtcdOptionsTest, EachMistakeNamesItsPart) {
  EXPECT_THAT(Refusal("ftp://h1"), AllOf(HasSubstr("scheme 'ftp'"), HasSubstr("etcd, http or")));
  EXPECT_THAT(Refusal("h1,,h2"), HasSubstr("between two commas"));
  EXPECT_THAT(Refusal("h1,"), HasSubstr("at an end"));
  EXPECT_THAT(Refusal("h1:port"), AllOf(HasSubstr("port 'port'"), HasSubstr("1 to 65535")));
  EXPECT_THAT(Refusal("h1:0"), HasSubstr("port '0'"));
  EXPECT_THAT(Refusal("h1:70000"), HasSubstr("port '70000'"));
  EXPECT_THAT(Refusal(":2379"), HasSubstr("no name or address"));
  EXPECT_THAT(Refusal("::1"), HasSubstr("brackets"));
  EXPECT_THAT(Refusal("[::1"), HasSubstr("without ']'"));
  EXPECT_THAT(Refusal("h 1"), HasSubstr("h 1"));
  EXPECT_THAT(Refusal("http://h1,https://h2"), HasSubstr("the same for all"));
  EXPECT_THAT(Refusal("etcd://h1/x?timeout=3"), HasSubstr("'?timeout=3'"));
  EXPECT_THAT(Refusal("etcd://@h1"), HasSubstr("user"));
  EXPECT_THAT(Refusal("etcd://h1/%zz"), AllOf(HasSubstr("prefix"), HasSubstr("two hex digits")));
}

TEST(EtcdOptionsTest, NoMistakeShowsThePassword) {
  EXPECT_THAT(Refusal("etcd://me:secret@h1:x"), Not(HasSubstr("secret")));
  EXPECT_THAT(Refusal("etcd://me:secret%4@h1"),
              AllOf(HasSubstr("password"), Not(HasSubstr("secret"))));
  EXPECT_THAT(Refusal("ftp://me:secret@h1"), Not(HasSubstr("secret")));
}

TEST(EtcdOptionsTest, Rdzv157TheProtocolIsTakenInAnyCaseAndIsHttpOrHttps) {
  for (const char* protocol : {"https", " HTTPS ", "hTTps"})
    EXPECT_TRUE(EtcdOptions::From(Parameters("h1", {{"protocol", protocol}})).tls) << protocol;
  for (const char* protocol : {"http", "\tHTTP"})
    EXPECT_FALSE(EtcdOptions::From(Parameters("h1", {{"protocol", protocol}})).tls) << protocol;
  EXPECT_FALSE(EtcdOptions::From(Parameters("h1")).tls) << "the default";
  EXPECT_TRUE(EtcdOptions::From(Parameters("https://h1")).tls);
  EXPECT_TRUE(EtcdOptions::From(Parameters("etcd://h1", {{"protocol", "https"}})).tls);
  for (const char* protocol : {"ftp", " ", "http s"}) {
    EXPECT_THAT(Refusal(Parameters("h1", {{"protocol", protocol}})),
                AllOf(HasSubstr("protocol"), HasSubstr("http or https")));
  }
  EXPECT_THAT(Refusal(Parameters("https://h1", {{"protocol", "http"}})), HasSubstr("https://"));
}

TEST(EtcdOptionsTest, Rdzv157AReadTimeoutIsPositive) {
  EXPECT_EQ(EtcdOptions::From(Parameters("h1")).timeout, std::chrono::seconds(60));
  EXPECT_EQ(EtcdOptions::From(Parameters("h1", {{"read_timeout", "7"}})).timeout,
            std::chrono::seconds(7));
  for (const char* limit : {"0", "-10", "9223372036854775807"}) {
    EXPECT_THAT(Refusal(Parameters("h1", {{"read_timeout", limit}})),
                AllOf(HasSubstr("read_timeout"), HasSubstr("positive")));
  }
}

TEST(EtcdOptionsTest, OptionsHaveTheNamesOfBothBackends) {
  for (const std::vector<std::string>& names : {std::vector<std::string>{"cacert", "cert", "key"},
                                                {"ca_cert", "ssl_cert", "ssl_cert_key"}}) {
    const EtcdOptions options =
        EtcdOptions::From(Parameters("https://h1", {{names[0], "/ca"},
                                                    {names[1], "/cert"},
                                                    {names[2], "/key"},
                                                    {"user", "me"},
                                                    {"password", "word"},
                                                    {"etcd_prefix", "/p/"}}));
    EXPECT_EQ(options.cacert, "/ca");
    EXPECT_EQ(options.cert, "/cert");
    EXPECT_EQ(options.key, "/key");
    EXPECT_EQ(options.user, "me");
    EXPECT_EQ(options.password, "word");
    EXPECT_EQ(options.prefix, "/p");
  }
}

TEST(EtcdOptionsTest, APasswordMayStandInAFileOrAVariable) {
  const TempDir folder;
  WriteFile(folder.File("word"), "p@ss word\nand more\n");
  const RendezvousConfig in_file{{"user", "me"}, {"password_file", folder.File("word")}};
  EXPECT_EQ(EtcdOptions::From(Parameters("h1", in_file)).password, "p@ss word");
  EXPECT_THAT(Refusal(Parameters("h1", {{"user", "me"}, {"password_file", folder.File("no")}})),
              AllOf(HasSubstr("password_file"), HasSubstr(folder.File("no"))));
  EXPECT_THAT(
      Refusal(Parameters(
          "h1", {{"user", "me"}, {"password", "a"}, {"password_file", folder.File("word")}})),
      HasSubstr("leave one out"));

  ASSERT_EQ(setenv("MUSTER_ETCD_PASSWORD", "told", 1), 0);
  EXPECT_EQ(EtcdOptions::From(Parameters("me@h1", {})).password, "told");
  EXPECT_EQ(EtcdOptions::From(Parameters("h1", in_file)).password, "p@ss word");
  EXPECT_EQ(EtcdOptions::From(Parameters("h1", {})).password, "") << "no user needs one";
  EXPECT_EQ(EtcdOptions::Parse("etcd://me@h1").password, "told");
  EXPECT_EQ(EtcdOptions::Parse("etcd://me:other@h1").password, "other");
  ASSERT_EQ(unsetenv("MUSTER_ETCD_PASSWORD"), 0);
}

TEST(EtcdOptionsTest, ContradictoryOptionsAreRefused) {
  EXPECT_THAT(Refusal(Parameters("https://h1", {{"cacert", "/a"}, {"ca_cert", "/b"}})),
              AllOf(HasSubstr("'cacert'"), HasSubstr("'ca_cert'")));
  EXPECT_THAT(Refusal(Parameters("h1", {{"cacert", "/a"}})), HasSubstr("protocol=https"));
  EXPECT_THAT(Refusal(Parameters("https://h1", {{"cert", "/a"}})), HasSubstr("not its key"));
  EXPECT_THAT(Refusal(Parameters("https://h1", {{"key", "/a"}})), HasSubstr("certificate"));
  EXPECT_THAT(Refusal(Parameters("h1", {{"password", "a"}})), HasSubstr("no user"));
  EXPECT_THAT(Refusal(Parameters("h1/a", {{"etcd_prefix", "/b"}})), HasSubstr("etcd_prefix"));
  EXPECT_THAT(Refusal(Parameters("h1", {{"etcd_prefix", true}})), HasSubstr("'etcd_prefix'"));
  EXPECT_THAT(Refusal(Parameters("h1", {{"etcd_prefix", "a\n"}})), HasSubstr("printable"));
}

TEST(EtcdOptionsTest, WhatIsFilledInByHandIsChecked) {
  EXPECT_NO_THROW(EtcdOptions().Validate());
  EXPECT_THROW(EtcdOptions{.endpoints = {}}.Validate(), std::invalid_argument);
  EXPECT_THROW((EtcdOptions{.endpoints = {{"h", 0}}}.Validate()), std::invalid_argument);
  EXPECT_THROW(EtcdOptions{.timeout = std::chrono::milliseconds(0)}.Validate(),
               std::invalid_argument);
}

}  // namespace muster::test
