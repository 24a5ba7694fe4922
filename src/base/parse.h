// Parsing of texts. Pure, without copies.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace muster {

/// Reads a number that is the whole text: no blanks, no '+', nothing after it. The base is
/// ten unless another is given.
template <typename T, typename... Base>
std::optional<T> ParseAll(std::string_view text, Base... base) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number, base...);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return number;
}

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// The pieces between the separators: "a,,b" has three, "" has one.
inline std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

}  // namespace muster
