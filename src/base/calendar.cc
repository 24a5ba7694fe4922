#include "base/calendar.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/text.h"

namespace muster {

namespace {

using std::chrono::microseconds;
using Moment = std::chrono::time_point<std::chrono::system_clock, microseconds>;

struct CalendarTime {
  int year, month, day, hour, minute, second, us;
};

// The time must be in the years 1 to 9999.
CalendarTime Fields(WallTime time) {
  const Moment moment{microseconds(static_cast<int64_t>(time))};
  const auto midnight = std::chrono::floor<std::chrono::days>(moment);
  const std::chrono::year_month_day date{midnight};
  const std::chrono::hh_mm_ss clock{moment - midnight};
  return {.year = static_cast<int>(date.year()),
          .month = static_cast<int>(static_cast<unsigned>(date.month())),
          .day = static_cast<int>(static_cast<unsigned>(date.day())),
          .hour = static_cast<int>(clock.hours().count()),
          .minute = static_cast<int>(clock.minutes().count()),
          .second = static_cast<int>(clock.seconds().count()),
          .us = static_cast<int>(clock.subseconds().count())};
}

}  // namespace

std::string UtcText(WallTime time, size_t digits) {
  if (time < kWallTimeMin || time > kWallTimeMax) return "";
  const CalendarTime at = Fields(time);
  char text[40];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%06d", at.year, at.month, at.day,
                at.hour, at.minute, at.second, at.us);
  const size_t whole = std::string_view(text).find('.');
  return Concat(std::string_view(text).substr(0, digits == 0 ? whole : whole + 1 + digits), 'Z');
}

Result<WallTime> ReadDatetime(std::string_view payload) {
  using namespace std::chrono;  // NOLINT: the lines below need several of its names
  if (payload.size() != kDatetimeBytes) {
    return MakeError(Code::kInvalid, "a time of ", payload.size(), " bytes instead of ",
                     kDatetimeBytes);
  }
  const auto at = [payload](size_t i) -> int { return static_cast<unsigned char>(payload[i]); };
  constexpr int kSecondPass = 0x80;
  const int in_year = at(0) << 8 | at(1);
  const auto in_month = static_cast<unsigned>(at(2) & ~kSecondPass);
  const int us = at(7) << 16 | at(8) << 8 | at(9);
  const year_month_day date{year(in_year), month(in_month), day(static_cast<unsigned>(at(3)))};
  if (in_year < 1 || in_year > 9999 || !date.ok() || at(4) >= 24 || at(5) >= 60 || at(6) >= 60 ||
      us >= 1'000'000) {
    return MakeError(Code::kInvalid, "there is no time ", in_year, '-', in_month, '-', at(3), ' ',
                     at(4), ':', at(5), ':', at(6), '+', us, "us in the years 1 to 9999");
  }
  const Moment moment =
      sys_days(date) + hours(at(4)) + minutes(at(5)) + seconds(at(6)) + microseconds(us);
  return WallTime{moment.time_since_epoch().count()};
}

std::string WriteDatetime(WallTime time) {
  const CalendarTime at = Fields(std::clamp(time, kWallTimeMin, kWallTimeMax));
  std::string payload;
  for (const int byte : {at.year >> 8, at.year, at.month, at.day, at.hour, at.minute, at.second,
                         at.us >> 16, at.us >> 8, at.us}) {
    payload += static_cast<char>(byte & 0xff);
  }
  return payload;
}

}  // namespace muster
