// Wall times as text, always UTC, in the years 1 to 9999 of Python's datetime; and as its ten bytes
// in a pickle.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace muster {

/// 0001-01-01 00:00:00.000000 and 9999-12-31 23:59:59.999999.
inline constexpr WallTime kWallTimeMin{-62'135'596'800'000'000};
inline constexpr WallTime kWallTimeMax{253'402'300'799'999'999};

/// "2026-01-31T09:20:30.123456Z", with this many digits of the fraction; further digits are cut
/// off, and 0 digits leave out the dot. Empty: the year is outside 1 to 9999.
std::string UtcText(WallTime time, size_t digits);

/// Year (two bytes, the high one first), month, day, hour, minute, second, microsecond (three).
inline constexpr size_t kDatetimeBytes = 10;

/// kInvalid: not ten bytes, no such day or time of day (there are no leap seconds), or a year
/// outside 1 to 9999. The highest bit of the month (datetime's `fold`) has no meaning in UTC and at
/// fixed offsets, and is ignored.
Result<WallTime> ReadDatetime(std::string_view payload);

/// A time outside the years 1 to 9999 is written as the nearest time inside them: a deadline "in a
/// million years" keeps its meaning.
std::string WriteDatetime(WallTime time);

}  // namespace muster
