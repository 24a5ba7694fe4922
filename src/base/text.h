// Building and reading text.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/result.h"

namespace muster {

namespace text_internal {
inline void AppendPiece(std::string& out, std::string_view piece) { out += piece; }
inline void AppendPiece(std::string& out, char piece) { out += piece; }
template <std::integral T>
requires(!std::same_as<T, char> && !std::same_as<T, bool>) void AppendPiece(std::string& out,
                                                                            T number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  out.append(digits, end);
}
}  // namespace text_internal

/// Concat("key of ", n, " bytes"): strings, characters and integers, in one allocation or two.
template <typename... Pieces>
std::string Concat(const Pieces&... pieces) {
  std::string out;
  (text_internal::AppendPiece(out, pieces), ...);
  return out;
}

/// An error with such a message.
template <typename... Pieces>
Error MakeError(Code code, const Pieces&... message) {
  return {code, Concat(message...)};
}

/// So many hexadecimal digits, with leading zeros.
std::string Hex(uint64_t number, size_t digits);

/// "8 MiB", "1.5 KiB", "17 bytes": for messages that a person reads.
std::string HumanBytes(uint64_t bytes);

/// Of ASCII, in every locale.
inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// The text without ASCII white space at both ends.
constexpr std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// The pieces between the separators: "a,,b" has three, "" has one.
std::vector<std::string_view> Split(std::string_view text, char separator);

/// Reads a number that is the whole text: no blanks, no '+', nothing after it. The base is
/// ten unless another is given.
template <typename T>
std::optional<T> ParseAll(std::string_view text, auto... base) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number, base...);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// Reads a counter as C's strtoll does: white space and one sign are skipped, reading stops at the
/// first other character, the rest is ignored. kInvalid: no digits. kOutOfRange: does not fit 64
/// bits. TCPStore peers rely on "12abc" counting as 12.
Result<int64_t> ParseCounter(std::string_view text);

/// As Python's int() reads it, but with ASCII digits and blanks only: a look-alike digit of another
/// script is more likely a mistake.
std::optional<int64_t> ParseWholeNumber(std::string_view text);

/// ASCII letters in lower case; every other byte as it is.
std::string LowerCase(std::string_view text);

/// 1 true t yes y, 0 false f no n, in any case and unpadded: PyTorch's booleans.
std::optional<bool> ParseBool(std::string_view word);

/// Text for one line of a log or message: bytes that do not print become \xNN, long texts are cut.
/// Characters that change the direction of the text around them count as not printable.
std::string Printable(std::string_view bytes, size_t length_max = 128);

/// The same, uncut: a text from a peer, a worker or a file must neither forge a line nor send
/// control sequences to a terminal.
std::string OneLine(std::string_view text);

/// The same for several lines, such as a traceback: line ends and tabs are kept.
std::string SeveralLines(std::string_view text);

/// "a, b and 14 more": at most `shown` of them, each printable. `count`, if larger, is the total
/// number.
std::string ListOf(const std::vector<std::string>& names, size_t shown, size_t count = 0);

}  // namespace muster
