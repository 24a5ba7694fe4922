#include "base/percent.h"

#include <charconv>
#include <cstdint>
#include <system_error>

namespace muster {

std::string PercentEncoded(std::string_view text, bool (*is_plain)(char)) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (is_plain(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    const std::string_view digits = text.substr(at + 1, 2);
    uint8_t byte = 0;
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || failure != std::errc() || end != digits.data() + 2)
      return std::nullopt;
    out += static_cast<char>(byte);
    at += 2;
  }
  return out;
}

}  // namespace muster
