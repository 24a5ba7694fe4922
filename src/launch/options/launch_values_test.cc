#include "launch/options/launch_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "launch/core/environment.h"
#include "launch/core/visible_devices.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(LaunchWordsTest, NodesAreANumberOrARange) {
  EXPECT_EQ(*ParseNodeCount("4"), (NodeCount{4, 4}));
  EXPECT_EQ(*ParseNodeCount("1:3"), (NodeCount{1, 3}));
  EXPECT_EQ(*ParseNodeCount(" 2 : 2"), (NodeCount{2, 2}));
}

TEST(LaunchWordsTest, Launch013WhatIsNoNumberOfNodesIsRefused) {
  for (const char* text : {"1:2:3", "a", "", ":", "1:", ":2", "1.5"})
    EXPECT_THAT(ParseNodeCount(text).error().message, HasSubstr("MIN:MAX")) << text;
  for (const char* text : {"2:1", "0", "0:3", "-1"})
    EXPECT_THAT(ParseNodeCount(text).error().message, HasSubstr("1 <= MIN <= MAX")) << text;
}

TEST(LaunchWordsTest, Launch033StreamsAreNamedForAllOrForSome) {
  constexpr Streams kNone{};
  constexpr Streams kOut{.out = true};
  constexpr Streams kErr{.err = true};
  constexpr Streams kBoth{.out = true, .err = true};
  const auto streams = [](std::string_view text, size_t workers) {
    std::vector<Streams> by_worker;
    for (size_t worker = 0; worker < workers; ++worker)
      by_worker.push_back(ParseStreams(text)->Of(worker));
    return by_worker;
  };
  EXPECT_THAT(streams("0", 2), ElementsAre(kNone, kNone));
  EXPECT_THAT(streams("1", 2), ElementsAre(kOut, kOut));
  EXPECT_THAT(streams("2", 1), ElementsAre(kErr));
  EXPECT_THAT(streams("3", 1), ElementsAre(kBoth));
  EXPECT_THAT(streams("0:1,2:2", 3), ElementsAre(kOut, kNone, kErr));
  EXPECT_THAT(streams("9:3", 1), ElementsAre(kNone));
}

TEST(LaunchWordsTest, Launch033OtherStreamsAreRefused) {
  for (const char* text : {"4", "", "0:1,", "0:4", "a", "0:", ":1", "0:1:2", "-1:1", "12", " 1"})
    EXPECT_FALSE(ParseStreams(text)) << text;
}

// torchrun reads one digit, and workers from 10 on cannot be named; here they can.
TEST(LaunchWordsTest, TheTenthWorkerHasStreamsToo) {
  EXPECT_EQ(ParseStreams("10:1")->Of(10), (Streams{.out = true}));
}

TEST(LaunchWordsTest, Launch034AListOfWorkers) {
  EXPECT_THAT(*ParseWorkerList("0,2"), ElementsAre(0, 2));
  EXPECT_THAT(*ParseWorkerList(""), IsEmpty());
  EXPECT_FALSE(ParseWorkerList("a"));
  EXPECT_FALSE(ParseWorkerList("0,"));
}

TEST(LaunchWordsTest, Launch040ADoubledCommaIsAComma) {
  EXPECT_THAT(ParseFilters("a,,b"), ElementsAre("a,b"));
  EXPECT_THAT(ParseFilters("out,bad"), ElementsAre("out", "bad"));
  EXPECT_THAT(ParseFilters(""), IsEmpty());
  EXPECT_THAT(ParseFilters("a,"), ElementsAre("a", ""));
}

TEST(LaunchWordsTest, Launch046TheLocalRankIsPutIntoArguments) {
  const auto with = [](std::string_view text) { return Substituted(text, {{"local_rank", "3"}}); };
  EXPECT_EQ(with("--id=$local_rank"), "--id=3");
  EXPECT_EQ(with("${local_rank}x"), "3x");
  EXPECT_EQ(with("$local_rank.log"), "3.log");
  for (const char* text :
       {"$local_rankx", "$1", "$", "a$", "${local_rank", "${local_rank }", "$rank", "${}"})
    EXPECT_EQ(with(text), text);
  EXPECT_EQ(with("a$$b"), "a$b");
  EXPECT_EQ(with("$$local_rank"), "$local_rank");
  EXPECT_EQ(with("$$$local_rank"), "$3");
}

TEST(LaunchWordsTest, Launch112PrefixesAreMadeAlike) {
  const std::map<std::string, std::string> values = {
      {"role_name", "tr"}, {"rank", "5"}, {"local_rank", "1"}};
  EXPECT_EQ(Substituted("[rank${rank}]: ", values), "[rank5]: ");
  EXPECT_EQ(Substituted("[$role_name$local_rank] $foo $$", values), "[tr1] $foo $");
}

TEST(LaunchWordsTest, Launch057AWorkerSeesItsOwnDeviceOnly) {
  EXPECT_EQ(*OnlyDeviceOf(0, "3, 5"), "3");
  EXPECT_EQ(*OnlyDeviceOf(1, "3, 5"), "5");
  EXPECT_EQ(*OnlyDeviceOf(0, "GPU-aa,GPU-bb"), "GPU-aa");
}

TEST(LaunchWordsTest, Launch058WithoutAListItIsItsNumber) {
  EXPECT_EQ(*OnlyDeviceOf(1, std::nullopt), "1");
}

TEST(LaunchWordsTest, Launch059AListThatIsTooShortIsRefused) {
  EXPECT_THAT(OnlyDeviceOf(2, "3,5").error().message,
              testing::AllOf(HasSubstr("names 2 devices"), HasSubstr("worker 2")));
  EXPECT_FALSE(OnlyDeviceOf(0, ""));
}

}  // namespace
}  // namespace muster
