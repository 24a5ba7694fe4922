#include "base/encoding.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/text.h"

namespace muster {

namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 64;

constexpr std::array<uint8_t, 256> kDigits = [] {
  std::array<uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return digits;
}();

}  // namespace

std::string Base64Encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  uint32_t bits = 0;
  int unwritten = 0;  // of the bits
  for (const char byte : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(byte);
    for (unwritten += 8; unwritten >= 6; unwritten -= 6) {
      text += kAlphabet[bits >> (unwritten - 6) & 63];
    }
  }
  if (unwritten > 0) text += kAlphabet[bits << (6 - unwritten) & 63];
  text.resize((text.size() + 3) / 4 * 4, '=');
  return text;
}

Result<std::string> Base64Decode(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;    // bits of the group that is being read
  size_t in_group = 0;  // digits of the group so far
  size_t pads = 0;
  for (const char c : text) {
    if (c == '=') {
      if (in_group >= 2 && in_group + ++pads >= 4) return bytes;
      continue;
    }
    const uint8_t digit = kDigits[static_cast<unsigned char>(c)];
    if (digit == kNoDigit) continue;
    pads = 0;
    bits = bits << 6 | digit;
    // The second, third and fourth digits complete one byte each.
    if (in_group > 0) bytes += static_cast<char>(bits >> (6 - 2 * in_group) & 0xff);
    in_group = (in_group + 1) % 4;
  }
  if (in_group != 0) {
    return MakeError(Code::kInvalid, "base64 of ", text.size(), " characters ends in a group of ",
                     in_group, " without its padding");
  }
  return bytes;
}

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
