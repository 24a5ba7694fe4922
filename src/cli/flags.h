// Numbers as values of flags. CLI11's own checks take nan for a number within every
// range and turn -1 into 18446744073709551615; these name what came and what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "base/time.h"

namespace muster::cli {

/// For Option::transform(): a whole number, decimal, from `least` to `most`.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);

/// For Option::transform(): a number of bytes, 0 or at least `least`: 1048576, 1024KiB, 1MiB, 1GiB.
CLI::Validator Bytes(uint64_t least);

/// For Option::transform(): a number of seconds, with or without a fraction. Both ends are
/// allowed; `least` is 0 or at least a millisecond.
CLI::Validator SecondsFrom(double least, double most);

/// Add an option with such a value; the help shows the one it has now as the default.
template <typename T>
void AddWhole(CLI::App& command, const std::string& name, T& value, uint64_t least, uint64_t most,
              const std::string& help) {
  command.add_option(name, value, help)->transform(WholeNumber(least, most))->capture_default_str();
}
void AddSeconds(CLI::App& command, const std::string& name, double& value, double least,
                double most, const std::string& help);
void AddText(CLI::App& command, const std::string& name, std::string& value,
             const std::string& help);

/// Rounded. std::invalid_argument for what SecondsFrom() refuses.
std::chrono::milliseconds ToMilliseconds(double seconds);
/// The same, to the nanosecond.
Duration ToDuration(double seconds);

/// The longest time that a flag can have: 31 years; the sum of two does not overflow.
inline constexpr double kSecondsMax = 1e9;
inline constexpr auto kWholeSecondsMax = static_cast<uint64_t>(kSecondsMax);

}  // namespace muster::cli
