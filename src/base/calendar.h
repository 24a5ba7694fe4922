// Wall times as calendar fields, always UTC, in the years 1 to 9999 of Python's datetime; and the
// ten bytes of one in a pickle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace muster {

struct CalendarTime {
  int year = 1970;
  unsigned month = 1;  ///< 1 to 12
  unsigned day = 1;    ///< from 1
  unsigned hour = 0;
  unsigned minute = 0;
  unsigned second = 0;  ///< 0 to 59: there are no leap seconds
  unsigned microsecond = 0;

  bool operator==(const CalendarTime&) const = default;
};

/// 0001-01-01 00:00:00.000000 and 9999-12-31 23:59:59.999999.
inline constexpr WallTime kWallTimeMin{-62'135'596'800'000'000};
inline constexpr WallTime kWallTimeMax{253'402'300'799'999'999};

/// kInvalid: there is no such day or time of day, or not in these years.
Result<WallTime> FromCalendar(const CalendarTime& fields);

/// kOutOfRange: not in these years.
Result<CalendarTime> ToCalendar(WallTime time);

/// "2026-01-31T09:20:30.123456Z", with this many digits of the fraction, which is cut off after
/// them, and without a dot for none. Empty: not in these years.
std::string UtcText(WallTime time, size_t digits);

/// Year (two bytes, the high one first), month, day, hour, minute, second, microsecond (three).
inline constexpr size_t kDatetimeBytes = 10;

/// kInvalid: not ten bytes, or fields that FromCalendar() refuses. The highest bit of the month
/// (datetime's `fold`) has no meaning in UTC and at fixed offsets, and is ignored.
Result<WallTime> ReadDatetime(std::string_view payload);

/// A time outside the years is written as the nearest one inside: a deadline "in a million years"
/// keeps its meaning.
std::string WriteDatetime(WallTime time);

}  // namespace muster
