#include "base/percent.h"

#include <cstdint>

#include "base/text.h"

namespace muster {

std::string PercentEncoded(std::string_view text, bool (*is_plain)(char)) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += is_plain(c) ? std::string(1, c) : Concat('%', kHex[byte >> 4], kHex[byte & 15]);
  }
  return out;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string out(text.substr(0, text.find('%')));
  for (text.remove_prefix(out.size()); !text.empty();) {
    const std::optional<uint8_t> byte = ParseAll<uint8_t>(text.substr(1, 2), 16);
    if (!byte || text.size() < 3) return std::nullopt;
    const std::string_view plain = text.substr(3, text.find('%', 3) - 3);
    out += Concat(static_cast<char>(*byte), plain);
    text.remove_prefix(3 + plain.size());
  }
  return out;
}

}  // namespace muster
