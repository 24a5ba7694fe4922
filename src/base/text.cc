#include "base/text.h"

#include <array>

namespace muster {

namespace {

// Bytes of the UTF-8 character at the beginning, or 0 if there is none that may be shown as it is:
// broken sequences, overlong ones, surrogates and the control characters from U+0080 to U+009F.
size_t ShownUtf8(std::string_view bytes) {
  const auto at = [bytes](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  const size_t size = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (size == 0 || bytes.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool control = lead == 0xc2 && at(1) < 0xa0;
  const bool overlong = (lead == 0xe0 && at(1) < 0xa0) || (lead == 0xf0 && at(1) < 0x90);
  const bool no_character = (lead == 0xed && at(1) >= 0xa0) || (lead == 0xf4 && at(1) >= 0x90);
  return control || overlong || no_character ? 0 : size;
}

}  // namespace

std::string HumanBytes(uint64_t bytes) {
  if (bytes == 1) return "1 byte";
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
  size_t at = 0;
  while (at < bytes.size() && at < length_max) {
    const auto byte = static_cast<unsigned char>(bytes[at]);
    size_t shown = byte >= 0x20 && byte < 0x7f ? 1 : 0;
    if (byte >= 0x80) shown = ShownUtf8(bytes.substr(at));  // terminals and logs show it
    if (shown > 0) {
      out += bytes.substr(at, shown);
    } else {
      out += Concat("\\x", kHex[byte >> 4], kHex[byte & 15]);
      shown = 1;
    }
    at += shown;
  }
  if (at < bytes.size()) out += Concat("... (", HumanBytes(bytes.size()), ")");
  return out;
}

}  // namespace muster
