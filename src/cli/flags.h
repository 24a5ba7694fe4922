// Numbers as users write them behind flags. CLI11's own checks take nan for a number within every
// range and turn -1 into 18446744073709551615; these name what came and what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace muster::cli {

/// For Option::transform(): a whole number, decimal, from `least` to `most`.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);

/// For Option::transform(): a number of bytes, 0 or at least `least`: 1048576, 1024KiB, 1MiB, 1GiB.
CLI::Validator Bytes(uint64_t least);

/// For Option::transform(): a number of seconds, with or without a fraction. Both ends are
/// allowed; `least` is 0 or at least a millisecond.
CLI::Validator SecondsFrom(double least, double most);

/// Rounded. std::invalid_argument for what no SecondsFrom() would have let through.
std::chrono::milliseconds ToMilliseconds(double seconds);
/// The same, to the nanosecond.
Duration ToDuration(double seconds);

/// The longest time that can be asked for: 31 years, and no sum of two overflows.
inline constexpr double kSecondsMax = 1e9;
inline constexpr auto kWholeSecondsMax = static_cast<uint64_t>(kSecondsMax);

}  // namespace muster::cli
