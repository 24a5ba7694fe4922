#include "launch/logs/failure_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/prng.h"
#include "base/text.h"
#include "base/utf8.h"

namespace muster {
namespace {

using nlohmann::json;
using testing::HasSubstr;

FailureRecord Sample() {
  return {.host = "node7",
          .rank = 5,
          .local_rank = 1,
          .pid = 4242,
          .code = -11,
          .time_seconds = 1769851230,
          .order = 1769851230123456,
          .error_file = "/logs/error.json",
          .error_time = 1769851230100000,
          .message = "a\n\"b\"",
          .is_trace = true,
          .output = "last\n",
          .was_signalled = false};
}

constexpr std::string_view kSampleJson =
    R"({"host":"node7","rank":5,"local_rank":1,"pid":4242,"exitcode":-11,)"
    R"("time_seconds":1769851230,"order":1769851230123456,"error_file":"/logs/error.json",)"
    R"("error_time":1769851230100000,)"
    R"("message":"a\n\"b\"","is_trace":true,"output":"last\n","was_told":false})";

std::string Refusal(std::string_view text) {
  const Result<FailureRecord> record = FailureFromJson(text);
  if (record) return "accepted";
  EXPECT_EQ(record.error().code, Code::kProtocol);
  return record.error().message;
}

TEST(FailureJsonTest, ARecordIsOneLine) {
  EXPECT_EQ(ToJson(Sample()), kSampleJson);
  EXPECT_EQ(*FailureFromJson(kSampleJson), Sample());
}

TEST(FailureJsonTest, EveryRecordComesBackAsItWasSent) {
  Prng prng(77);
  const std::string_view texts[] = {"",
                                    "a",
                                    "\xff\xfe",
                                    "\xe2\x82\xac",
                                    "\n\t\"\\",
                                    "{}[]",
                                    std::string_view("\0", 1),
                                    "\\udcff",
                                    "\xf0\x9f\x98\x80"};
  const auto text = [&] {
    std::string made;
    for (uint64_t pieces = prng.Below(8); pieces > 0; --pieces)
      made += texts[prng.Below(std::size(texts))];
    return made;
  };
  const auto number = [&] { return static_cast<int64_t>(prng.Next() >> prng.Below(64)); };
  for (int i = 0; i < 2000; ++i) {
    const FailureRecord record{.host = text(),
                               .rank = number(),
                               .local_rank = number(),
                               .pid = number(),
                               .code = static_cast<int>(number()),
                               .time_seconds = number(),
                               .order = number(),
                               .error_file = text(),
                               .error_time = static_cast<int64_t>(prng.Next()),
                               .message = text(),
                               .is_trace = prng.Below(2) == 0,
                               .output = text(),
                               .was_signalled = prng.Below(2) == 0};
    const Result<FailureRecord> back = FailureFromJson(ToJson(record));
    ASSERT_TRUE(back.has_value()) << ToJson(record);
    EXPECT_EQ(*back, FitToSend(record)) << ToJson(record);
    EXPECT_EQ(back->message, ReplaceInvalidUtf8(record.message));
    EXPECT_EQ(back->order, record.order);
  }
}

TEST(FailureJsonTest, LongTextsAreSentWithTheirBeginningAndEnd) {
  FailureRecord record = Sample();
  record.message = "first " + std::string(9'000'000, 'x') + " last";
  // Characters of three bytes, which no cut may halve, and bytes that need the longest escape.
  for (int i = 0; i < 100'000; ++i) record.output += "\xe2\x82\xac";
  record.host = std::string(100'000, '\1');
  record.error_file = std::string(100'000, '\1');
  const std::string sent = ToJson(record);
  EXPECT_LE(sent.size(), kFailureJsonBytesMax);
  const Result<FailureRecord> back = FailureFromJson(sent);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, FitToSend(record));
  EXPECT_EQ(FitToSend(*back), *back);
  EXPECT_LE(back->message.size(), kFailureTextBytesMax);
  EXPECT_TRUE(back->message.starts_with("first xxx"));
  EXPECT_TRUE(back->message.ends_with("xxx last"));
  EXPECT_THAT(back->message, HasSubstr("\n... (8.5 MiB left out)\n"));
  EXPECT_TRUE(IsUtf8(back->output));
}

TEST(FailureJsonTest, OnlyAnEarlierFileThanClocksDifferTakesTheBlameFromAnotherNode) {
  FailureRecord first = Sample();
  first.error_time = first.order;
  FailureRecord other = first;
  const auto failed_before = [&](int64_t earlier_by) {
    other.error_time = first.order - earlier_by;
    return FailedBefore(ToJson(other), ToJson(first));
  };
  EXPECT_FALSE(failed_before(0));
  EXPECT_FALSE(failed_before(kClockSkewMax));
  EXPECT_TRUE(failed_before(kClockSkewMax + 1));
  first.error_time = 0;  // killed: only its end is known, and it is detected late
  EXPECT_FALSE(failed_before(kClockSkewMax + 100'000));
  EXPECT_TRUE(failed_before(kClockSkewMax + 100'001));
  other.error_time = INT64_MIN;
  EXPECT_FALSE(FailedBefore(ToJson(other), ToJson(first)));
}

TEST(FailureJsonTest, WhatIsWrongWithARecordIsSaid) {
  EXPECT_EQ(Refusal(""), "a node's failure cannot be read: it is empty");
  EXPECT_EQ(Refusal("[]"), "a node's failure cannot be read: it is no object");
  EXPECT_EQ(Refusal("{}"), "a node's failure cannot be read: it has no \"host\"");
  EXPECT_THAT(Refusal(kSampleJson.substr(0, 40)), HasSubstr("it ends in the middle"));
  EXPECT_THAT(Refusal(std::string(500'000, '[')), HasSubstr("nested 500000 deep"));
  EXPECT_THAT(Refusal(std::string(kFailureJsonBytesMax + 1, ' ')), HasSubstr("too large"));
}

TEST(FailureJsonTest, EveryFieldIsNeededAndHasItsType) {
  const json whole = json::parse(kSampleJson);
  for (const auto& [name, value] : whole.items()) {
    json changed = whole;
    changed.erase(name);
    EXPECT_THAT(Refusal(changed.dump()), HasSubstr("it has no \"" + name + "\""));
    for (const json& other :
         {json(), json(1.5), json::array(), json::object(), value.is_string() ? json(7) : json("7"),
          json(UINT64_MAX), json(value.is_boolean() ? json(1) : json(true))}) {
      changed[name] = other;
      EXPECT_THAT(Refusal(changed.dump()), HasSubstr("its \"" + name + "\" is of the wrong type"))
          << other;
    }
  }
  json changed = whole;
  changed["exitcode"] = int64_t{INT_MAX} + 1;
  EXPECT_THAT(Refusal(changed.dump()), HasSubstr("\"exitcode\""));
}

TEST(FailureJsonTest, KeysOfNewerPeersArePassedOver) {
  json newer = json::parse(kSampleJson);
  newer["gpu"] = {{"temperature", 90}};
  EXPECT_EQ(*FailureFromJson(newer.dump()), Sample());
}

TEST(FailureJsonTest, TheReportNamesTheCauseAndAllFailures) {
  const FailureRecord victim{.host = "node8",
                             .rank = 6,
                             .pid = 99,
                             .code = 1,
                             .time_seconds = 0,
                             .order = 2,
                             .output = "\xff",
                             .was_signalled = true};
  const std::string report = FailureReportJson({.entry_point = "t.py",
                                                .interpreter = "/v/bin/python",
                                                .node = "node7",
                                                .run_id = "llama",
                                                .round = 2,
                                                .restarts = 3},
                                               std::vector{victim, Sample()}, 1);
  EXPECT_TRUE(report.ends_with("}\n"));
  const json read = json::parse(report);
  json cause = json::parse(kSampleJson);
  cause["time"] = "2026-01-31T09:20:30Z";
  cause["signal"] = "SIGSEGV";
  json other = json::parse(ToJson(victim));
  other["time"] = "1970-01-01T00:00:00Z";
  other["signal"] = nullptr;
  other["message"] = DefaultMessage(1, 99, /*has_output=*/true);
  EXPECT_EQ(read, (json{{"entry_point", "t.py"},
                        {"interpreter", "/v/bin/python"},
                        {"root_cause", cause},
                        {"failures", {other, cause}},
                        {"node", "node7"},
                        {"run_id", "llama"},
                        {"round", 2},
                        {"restarts", 3}}));
}

TEST(FailureJsonTest, TimesOutsideOfAllYearsAreNull) {
  FailureRecord record = Sample();
  for (const int64_t seconds : {INT64_MAX, INT64_MIN, int64_t{1} << 40, -(int64_t{1} << 40)}) {
    record.time_seconds = seconds;
    const json read = json::parse(FailureReportJson({}, std::vector{record}, 0));
    EXPECT_TRUE(read["root_cause"]["time"].is_null()) << seconds;
  }
}

TEST(LocalTimeTextTest, IsLocalTimeInTheReportsForm) {
  std::tm fields = {};
  fields.tm_year = 126;
  fields.tm_mon = 0;
  fields.tm_mday = 31;
  fields.tm_hour = 10;
  fields.tm_min = 20;
  fields.tm_sec = 30;
  fields.tm_isdst = -1;
  EXPECT_EQ(LocalTimeText(std::mktime(&fields)), "2026-01-31_10:20:30");
  EXPECT_EQ(LocalTimeText(INT64_MAX), "<N/A>");
}

}  // namespace
}  // namespace muster
