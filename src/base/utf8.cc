#include "base/utf8.h"

namespace muster {

size_t Utf8CharacterBytes(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (size == 0 || bytes.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool no_character = (lead == 0xed && byte(1) >= 0xa0) || (lead == 0xf4 && byte(1) >= 0x90);
  return overlong || no_character ? 0 : size;
}

bool IsUtf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = Utf8CharacterBytes(bytes.substr(at));
    if (size == 0) return false;
    at += size;
  }
  return true;
}

std::pair<std::string_view, std::string_view> EndsOf(std::string_view text, size_t head,
                                                     size_t tail) {
  const auto is_inside = [text](size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  size_t begin = text.size() - tail;
  while (is_inside(head)) --head;
  while (is_inside(begin)) ++begin;
  return {text.substr(0, head), text.substr(begin)};
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = Utf8CharacterBytes(bytes.substr(at));
    text += size == 0 ? std::string_view("\xef\xbf\xbd") : bytes.substr(at, size);
    at += size == 0 ? 1 : size;
  }
  return text;
}

}  // namespace muster
