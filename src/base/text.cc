#include "base/text.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace muster {

namespace {

// U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069 change the direction of text;
// U+2028 and U+2029 end lines.
bool MovesText(std::string_view character) {
  if (character == "\xd8\x9c") return true;
  if (character.size() != 3 || !character.starts_with('\xe2')) return false;
  const auto last = static_cast<unsigned char>(character[2]);
  if (character[1] == '\x80') return last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae);
  return character[1] == '\x81' && last >= 0xa6 && last <= 0xa9;
}

// Bytes of the character at the beginning if it is printable; 0 for control characters (U+0080 to
// U+009F, too) and for bytes that are no character.
size_t ShownBytes(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x20 || lead == 0x7f) return 0;
  const size_t size = Utf8CharacterBytes(bytes);
  if (lead == 0xc2 && size == 2 && static_cast<unsigned char>(bytes[1]) < 0xa0) return 0;
  return MovesText(bytes.substr(0, size)) ? 0 : size;
}

}  // namespace

std::string Hex(uint64_t number, size_t digits) {
  std::string text(digits, '0');
  for (size_t i = digits; i-- > 0; number >>= 4) text[i] = "0123456789abcdef"[number & 15];
  return text;
}

std::string HumanBytes(uint64_t bytes) {
  if (bytes == 1) return "1 byte";
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  uint64_t rest = 0;
  for (; bytes >= 1024; bytes /= 1024, ++unit) rest = bytes % 1024;
  const uint64_t tenths = rest * 10 / 1024;
  return Concat(bytes, tenths == 0 ? "" : Concat('.', tenths), ' ', kUnits[unit]);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::optional<int64_t> ParseWholeNumber(std::string_view text) {
  std::string_view rest = Trim(text);
  std::string digits;
  if (rest.starts_with('+') || rest.starts_with('-')) {
    if (rest.front() == '-') digits += '-';
    rest.remove_prefix(1);
  }
  char previous = '_';  // so that an underscore needs a digit before it
  for (const char c : rest) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c != '_' || previous == '_')) return std::nullopt;
    if (digit) digits += c;
    previous = c;
  }
  if (previous == '_') return std::nullopt;  // empty, or an underscore at the end
  return ParseAll<int64_t>(digits);
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::optional<bool> ParseBool(std::string_view word) {
  const std::string lower = LowerCase(word);
  for (const std::string_view yes : {"1", "true", "t", "yes", "y"}) {
    if (lower == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "f", "no", "n"}) {
    if (lower == no) return false;
  }
  return std::nullopt;
}

Result<int64_t> ParseCounter(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  std::string_view digits = text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
  // from_chars knows '-' but not '+'; "+-5" must stay an error.
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
    if (digits.starts_with('-')) digits = "";
  }
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure == std::errc::result_out_of_range) {
    return MakeError(Code::kOutOfRange, "'", Printable(text, 40), "' does not fit in 64 bits");
  }
  if (failure != std::errc()) {
    return MakeError(Code::kInvalid, "'", Printable(text, 40), "' is not a number");
  }
  return value;
}

std::string Printable(std::string_view bytes, size_t length_max) {
  std::string out;
  size_t at = 0;
  while (at < bytes.size() && at < length_max) {
    const auto byte = static_cast<unsigned char>(bytes[at]);
    size_t shown = ShownBytes(bytes.substr(at));
    if (shown > 0) {
      out += bytes.substr(at, shown);
    } else {
      out += Concat("\\x", Hex(byte, 2));
      shown = 1;
    }
    at += shown;
  }
  if (at < bytes.size()) out += Concat("... (", HumanBytes(bytes.size()), ")");
  return out;
}

std::string OneLine(std::string_view text) { return Printable(text, text.size()); }

std::string SeveralLines(std::string_view text) {
  std::string out;
  while (true) {
    const size_t end = text.find_first_of("\n\t");
    std::string_view part = text.substr(0, end);
    const bool ends_line = end != text.npos && text[end] == '\n';
    if (ends_line && part.ends_with('\r')) part.remove_suffix(1);  // of Windows
    out += OneLine(part);
    if (end == text.npos) return out;
    out += text[end];
    text.remove_prefix(end + 1);
  }
}

std::string ListOf(const std::vector<std::string>& names, size_t shown, size_t count) {
  std::string out;
  shown = std::min(shown, names.size());
  for (size_t i = 0; i < shown; ++i) out += Concat(i == 0 ? "" : ", ", OneLine(names[i]));
  count = std::max(count, names.size());
  if (count > shown) out += Concat(shown == 0 ? "" : " and ", count - shown, " more");
  return out;
}

}  // namespace muster
