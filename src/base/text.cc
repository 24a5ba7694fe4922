#include "base/text.h"

#include <array>

namespace muster {

std::string HumanBytes(uint64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  uint64_t whole = bytes;
  uint64_t rest = 0;
  while (whole >= 1024 && unit + 1 < kUnits.size()) {
    rest = whole % 1024;
    whole /= 1024;
    ++unit;
  }
  const uint64_t tenths = rest * 10 / 1024;
  return tenths == 0 ? Concat(whole, ' ', std::string_view(kUnits[unit]))
                     : Concat(whole, '.', tenths, ' ', std::string_view(kUnits[unit]));
}

Result<int64_t> ParseCounter(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpace);
  std::string_view digits = begin == std::string_view::npos ? "" : text.substr(begin);
  // from_chars knows '-' but not '+'; "+-5" must stay an error.
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
    if (digits.starts_with('-')) digits = "";
  }
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure == std::errc::result_out_of_range) {
    return Error{Code::kOutOfRange, Concat("'", Printable(text, 40), "' does not fit in 64 bits")};
  }
  if (failure != std::errc()) {
    return Error{Code::kInvalid, Concat("'", Printable(text, 40), "' is not a number")};
  }
  return value;
}

std::string Printable(std::string_view bytes, size_t length_max) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : bytes.substr(0, length_max)) {
    const auto byte = static_cast<unsigned char>(c);
    // Bytes of UTF-8 sequences pass: terminals and logs show them.
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += Concat("\\x", kHex[byte >> 4], kHex[byte & 15]);
    }
  }
  if (bytes.size() > length_max) out += Concat("... (", HumanBytes(bytes.size()), ")");
  return out;
}

}  // namespace muster
