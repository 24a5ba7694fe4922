#include "base/calendar.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <vector>

namespace muster {
namespace {

constexpr WallTime kExampleTime{1'772'368'496'789'012};
constexpr std::string_view kExampleBytes = "\x07\xea\x03\x01\x0c\x22\x38\x0c\x0a\x14";

/// Calendar fields, and the bytes that stand for them.
struct Fields {
  unsigned year = 1970;
  unsigned month = 1;
  unsigned day = 1;
  unsigned hour = 0;
  unsigned minute = 0;
  unsigned second = 0;
  unsigned microsecond = 0;
};

std::string Bytes(const Fields& of) {
  std::string bytes;
  for (const unsigned byte :
       {of.year >> 8, of.year, of.month, of.day, of.hour, of.minute, of.second,
        of.microsecond >> 16, of.microsecond >> 8, of.microsecond}) {
    bytes += static_cast<char>(byte & 0xff);
  }
  return bytes;
}

/// Reads and writes the same.
void ExpectIsTime(const Fields& fields, WallTime time) {
  EXPECT_EQ(ReadDatetime(Bytes(fields)).value(), time);
  EXPECT_EQ(WriteDatetime(time), Bytes(fields));
}

TEST(CalendarTest, KnowsTheEpochAndAnExample) {
  ExpectIsTime({}, WallTime{0});
  ExpectIsTime({.year = 2026,
                .month = 3,
                .day = 1,
                .hour = 12,
                .minute = 34,
                .second = 56,
                .microsecond = 789'012},
               kExampleTime);
}

TEST(CalendarTest, ATextInUtcHasAsManyDigitsAsAreRequested) {
  EXPECT_EQ(UtcText(kExampleTime, 6), "2026-03-01T12:34:56.789012Z");
  EXPECT_EQ(UtcText(kExampleTime, 3), "2026-03-01T12:34:56.789Z");
  EXPECT_EQ(UtcText(kExampleTime, 0), "2026-03-01T12:34:56Z");
  EXPECT_EQ(UtcText(kWallTimeMin, 0), "0001-01-01T00:00:00Z");
  EXPECT_EQ(UtcText(WallTime{std::numeric_limits<int64_t>::max()}, 0), "");
}

TEST(CalendarTest, CountsBackwardsBeforeTheEpoch) {
  ExpectIsTime({.year = 1969,
                .month = 12,
                .day = 31,
                .hour = 23,
                .minute = 59,
                .second = 59,
                .microsecond = 999'999},
               WallTime{-1});
}

TEST(CalendarTest, ReachesFromYear1ToYear9999) {
  ExpectIsTime({.year = 1}, kWallTimeMin);
  ExpectIsTime({.year = 9999,
                .month = 12,
                .day = 31,
                .hour = 23,
                .minute = 59,
                .second = 59,
                .microsecond = 999'999},
               kWallTimeMax);
}

TEST(CalendarTest, ATimeOutsideTheYearsHasNoText) {
  for (const WallTime time : {WallTime{static_cast<int64_t>(kWallTimeMin) - 1},
                              WallTime{static_cast<int64_t>(kWallTimeMax) + 1},
                              WallTime{std::numeric_limits<int64_t>::min()},
                              WallTime{std::numeric_limits<int64_t>::max()}}) {
    EXPECT_EQ(UtcText(time, 6), "");
  }
}

TEST(CalendarTest, RefusesWhatIsNoDate) {
  const std::vector<Fields> wrong = {
      {.year = 0},
      {.year = 10'000},
      {.year = 65'535},
      {.month = 0},
      {.month = 13},
      {.month = 127},
      {.day = 0},
      {.day = 32},
      {.day = 255},
      {.month = 4, .day = 31},
      {.hour = 24},
      {.minute = 60},
      {.second = 60},
      {.microsecond = 1'000'000},
      {.year = 2026, .month = 2, .day = 29},
      {.year = 1900, .month = 2, .day = 29},
  };
  for (const Fields& fields : wrong) {
    const Result<WallTime> read = ReadDatetime(Bytes(fields));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::kInvalid);
  }
  EXPECT_TRUE(ReadDatetime(Bytes({.year = 2000, .month = 2, .day = 29})));
}

TEST(CalendarTest, ReadsAndWritesTheTenBytes) {
  EXPECT_EQ(ReadDatetime(kExampleBytes).value(), kExampleTime);
  EXPECT_EQ(WriteDatetime(kExampleTime), kExampleBytes);
}

TEST(CalendarTest, IgnoresWhichPassOfTheClockItWas) {
  std::string second_pass(kExampleBytes);
  second_pass[2] |= static_cast<char>(0x80);
  EXPECT_EQ(ReadDatetime(second_pass).value(), kExampleTime);
}

TEST(CalendarTest, RefusesOtherBytes) {
  for (const std::string& payload : {std::string(), std::string(9, '\1'), std::string(11, '\1'),
                                     std::string(10, '\0'), std::string(10, '\xff')}) {
    ASSERT_FALSE(ReadDatetime(payload));
    EXPECT_EQ(ReadDatetime(payload).error().code, Code::kInvalid);
  }
}

TEST(CalendarTest, WritesTheNearestTimeThatCanBeWritten) {
  EXPECT_EQ(WriteDatetime(WallTime{std::numeric_limits<int64_t>::max()}),
            WriteDatetime(kWallTimeMax));
  EXPECT_EQ(WriteDatetime(WallTime{std::numeric_limits<int64_t>::min()}),
            WriteDatetime(kWallTimeMin));
}

RC_GTEST_PROP(CalendarTest, ReadsBackWhatItWrote, ()) {
  const WallTime time{*rc::gen::inRange(static_cast<int64_t>(kWallTimeMin),
                                        static_cast<int64_t>(kWallTimeMax) + 1)};
  RC_ASSERT(ReadDatetime(WriteDatetime(time)).value() == time);
}

RC_GTEST_PROP(CalendarTest, TenBytesThatAreATimeAreItsOnlyForm, ()) {
  // Small bytes, so that many of the payloads are dates.
  std::string payload = "\x07";
  for (int i = 0; i < 9; ++i) payload += static_cast<char>(*rc::gen::inRange(0, 16));
  const auto time = ReadDatetime(payload);
  if (time) RC_ASSERT(WriteDatetime(*time) == payload);
}

}  // namespace
}  // namespace muster
