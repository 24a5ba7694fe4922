#include "cli/flags.h"

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/parse.h"
#include "base/text.h"

namespace muster::cli {

namespace {

// "0.001", "4294967", "1000000000": no exponent, no zeros at the end.
std::string Plain(double number) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed);
  return {digits, end.ptr};
}

}  // namespace

CLI::Validator WholeNumber(uint64_t least, uint64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        const auto number = ParseAll<uint64_t>(text);
        if (!number || *number < least || *number > most) {
          return Concat("'", Printable(text), "' is not a whole number from ", least, " to ", most);
        }
        text = Concat(*number);  // CLI11 would read 010 as 8
        return "";
      },
      "");
}

CLI::Validator Bytes(uint64_t least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        constexpr std::pair<std::string_view, int> kUnits[] = {
            {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
        std::string digits = text;
        int shift = 0;
        for (const auto& [unit, bits] : kUnits) {
          if (!text.ends_with(unit)) continue;
          digits.resize(text.size() - unit.size());
          shift = bits;
        }
        const auto number = ParseAll<uint64_t>(digits);
        const bool fits = number && *number <= (uint64_t{1} << 62 >> shift);
        const uint64_t bytes = fits ? *number << shift : 0;
        if (!fits || (bytes != 0 && bytes < least)) {
          return Concat("'", Printable(text), "' is not 0 and not a number of bytes of at least ",
                        HumanBytes(least), ", such as 256MiB");
        }
        text = Concat(bytes);
        return "";
      },
      "");
}

CLI::Validator SecondsFrom(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        const auto number = ParseAll<double>(text);
        // Written so that nan, which is neither more nor less, is refused.
        if (number && *number >= least && *number <= most) return "";
        return Concat("'", Printable(text), "' is not within ", Plain(least), " to ", Plain(most),
                      " seconds");
      },
      "");
}

void AddSeconds(CLI::App& command, const std::string& name, double& value, double least,
                double most, const std::string& help) {
  command.add_option(name, value, help)->transform(SecondsFrom(least, most))->capture_default_str();
}

void AddText(CLI::App& command, const std::string& name, std::string& value,
             const std::string& help) {
  command.add_option(name, value, help)->capture_default_str();
}

std::chrono::milliseconds ToMilliseconds(double seconds) {
  if (!(seconds >= 0 && seconds <= kSecondsMax)) {
    throw std::invalid_argument(
        Concat("a time must be within 0 to ", Plain(kSecondsMax), " seconds"));
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

Duration ToDuration(double seconds) {
  // CLI11 takes nan for a number within every range.
  if (!(seconds >= 0 && seconds <= kSecondsMax)) {
    throw std::invalid_argument(Concat("'", std::to_string(seconds), "' is not a time in seconds"));
  }
  return Duration(static_cast<int64_t>(seconds * 1e9));
}

}  // namespace muster::cli
