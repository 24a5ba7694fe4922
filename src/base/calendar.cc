#include "base/calendar.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/text.h"

namespace muster {

namespace {

using std::chrono::microseconds;
using Moment = std::chrono::time_point<std::chrono::system_clock, microseconds>;

constexpr int64_t kYearMin = 1;
constexpr int64_t kYearMax = 9999;

Error NoSuchTime(const CalendarTime& f) {
  return Error{Code::kInvalid,
               Concat("there is no time ", f.year, '-', f.month, '-', f.day, ' ', f.hour, ':',
                      f.minute, ':', f.second, '+', f.microsecond, "us in the years 1 to 9999")};
}

// The time must be within the years.
CalendarTime Fields(WallTime time) {
  const Moment moment{microseconds(static_cast<int64_t>(time))};
  const auto midnight = std::chrono::floor<std::chrono::days>(moment);
  const std::chrono::year_month_day date{midnight};
  const std::chrono::hh_mm_ss clock{moment - midnight};
  return {.year = static_cast<int>(date.year()),
          .month = static_cast<unsigned>(date.month()),
          .day = static_cast<unsigned>(date.day()),
          .hour = static_cast<unsigned>(clock.hours().count()),
          .minute = static_cast<unsigned>(clock.minutes().count()),
          .second = static_cast<unsigned>(clock.seconds().count()),
          .microsecond = static_cast<unsigned>(clock.subseconds().count())};
}

}  // namespace

Result<WallTime> FromCalendar(const CalendarTime& fields) {
  using namespace std::chrono;  // NOLINT: each line below needs several of its names
  const bool year_fits = fields.year >= kYearMin && fields.year <= kYearMax;
  // The calendar classes keep one byte of each field: 257 would pass for 1.
  const bool date_fits = fields.month <= 12 && fields.day <= 31;
  const bool clock_fits = fields.hour < 24 && fields.minute < 60 && fields.second < 60 &&
                          fields.microsecond < 1'000'000;
  if (!year_fits || !date_fits || !clock_fits) return NoSuchTime(fields);
  const year_month_day date{year(fields.year), month(fields.month), day(fields.day)};
  if (!date.ok()) return NoSuchTime(fields);
  const Moment moment = sys_days(date) + hours(fields.hour) + minutes(fields.minute) +
                        seconds(fields.second) + microseconds(fields.microsecond);
  return WallTime{moment.time_since_epoch().count()};
}

Result<CalendarTime> ToCalendar(WallTime time) {
  if (time < kWallTimeMin || time > kWallTimeMax) {
    return Error{Code::kOutOfRange, Concat(static_cast<int64_t>(time),
                                           " us since 1970 is not in the years 1 to 9999")};
  }
  return Fields(time);
}

std::string UtcText(WallTime time, size_t digits) {
  const Result<CalendarTime> at = ToCalendar(time);
  if (!at) return "";
  char text[40];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02u:%02u:%02u.%06u", at->year, at->month,
                at->day, at->hour, at->minute, at->second, at->microsecond);
  const size_t whole = std::string_view(text).find('.');
  return Concat(std::string_view(text).substr(0, digits == 0 ? whole : whole + 1 + digits), 'Z');
}

Result<WallTime> ReadDatetime(std::string_view payload) {
  if (payload.size() != kDatetimeBytes) {
    return Error{Code::kInvalid,
                 Concat("a time of ", payload.size(), " bytes instead of ", kDatetimeBytes)};
  }
  const auto at = [payload](size_t i) -> unsigned {
    return static_cast<unsigned char>(payload[i]);
  };
  constexpr unsigned kSecondPass = 0x80;
  return FromCalendar({.year = static_cast<int>(at(0) << 8 | at(1)),
                       .month = at(2) & ~kSecondPass,
                       .day = at(3),
                       .hour = at(4),
                       .minute = at(5),
                       .second = at(6),
                       .microsecond = at(7) << 16 | at(8) << 8 | at(9)});
}

std::string WriteDatetime(WallTime time) {
  const CalendarTime fields = Fields(std::clamp(time, kWallTimeMin, kWallTimeMax));
  const auto year = static_cast<unsigned>(fields.year);
  const unsigned us = fields.microsecond;
  std::string payload;
  for (const unsigned byte : {year >> 8, year, fields.month, fields.day, fields.hour, fields.minute,
                              fields.second, us >> 16, us >> 8, us}) {
    payload += static_cast<char>(byte & 0xff);
  }
  return payload;
}

}  // namespace muster
