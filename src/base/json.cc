#include "base/json.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "base/utf8.h"

namespace muster {

namespace {

constexpr std::string_view kHex = "0123456789abcdef";

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  ///< 0: there is none at the beginning.
};

/// The character at the beginning of a text that is not empty.
CodePoint FirstCodePoint(std::string_view text) {
  const size_t size = Utf8CharacterBytes(text);
  if (size == 0) return {};
  const auto at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  uint32_t value = size == 1 ? at(0) : at(0) & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) value = value << 6 | (at(i) & 0x3fu);
  return {value, size};
}

void AppendUtf8(std::string& out, uint32_t code) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  const auto rest = [&put, code](unsigned shift) { put(0x80u | (code >> shift & 0x3fu)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xc0u | code >> 6), rest(0);
  if (code < 0x10000) return put(0xe0u | code >> 12), rest(6), rest(0);
  put(0xf0u | code >> 18), rest(12), rest(6), rest(0);
}

void AppendUnit(std::string& out, uint32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[unit >> shift & 15];
}

/// The letter of a short escape, and what it stands for; both ways.
struct ShortEscape {
  char letter;
  char stands_for;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'n', '\n'}, {'r', '\r'},
                                         {'t', '\t'}, {'f', '\f'},  {'b', '\b'}};

void AppendEscaped(std::string& out, uint32_t code) {
  for (const ShortEscape& known : kShortEscapes) {
    if (code != static_cast<unsigned char>(known.stands_for)) continue;
    out += '\\';
    out += known.letter;
    return;
  }
  if (code >= 0x20 && code < 0x7f) {
    out += static_cast<char>(code);
  } else if (code < 0x10000) {
    AppendUnit(out, code);
  } else {
    AppendUnit(out, 0xd800 + ((code - 0x10000) >> 10));
    AppendUnit(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
  }
}

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  constexpr CodePoint kReplacement = {0xfffd, 1};
  out += '"';
  while (!text.empty()) {
    CodePoint next = FirstCodePoint(text);
    if (next.bytes == 0) next = kReplacement;
    AppendEscaped(out, next.value);
    text.remove_prefix(next.bytes);
  }
  out += '"';
}

void JsonReader::FailAt(size_t place, std::string_view problem) {
  if (problem_.empty()) problem_ = Concat(what_, ", byte ", place, ": ", problem);
  at_ = json_.size();
}

void JsonReader::Fail(std::string_view problem) { FailAt(at_, problem); }

void JsonReader::Refuse(std::string_view allowed) {
  if (at_ >= json_.size())
    return FailAt(at_, Concat("the text ends where ", allowed, " is expected"));
  FailAt(at_, Concat("'", Printable(json_.substr(at_), 16), "' where ", allowed, " is expected"));
}

void JsonReader::SkipBlanks() {
  at_ = std::min(json_.find_first_not_of(" \t\n\r", at_), json_.size());
}

bool JsonReader::TryTake(char expected) {
  SkipBlanks();
  if (at_ >= json_.size() || json_[at_] != expected) return false;
  ++at_;
  return true;
}

void JsonReader::Take(char expected) {
  if (!TryTake(expected)) Refuse(Concat("'", expected, "'"));
}

void JsonReader::End() {
  SkipBlanks();
  if (at_ < json_.size()) Refuse("the end of the text");
}

bool JsonReader::AtString() {
  SkipBlanks();
  return json_.substr(at_).starts_with('"');
}

bool JsonReader::AtWord() {
  SkipBlanks();
  return at_ < json_.size() && json_[at_] >= 'a' && json_[at_] <= 'z';
}

std::string JsonReader::String() {
  SkipBlanks();
  const size_t begin = at_;
  if (!TryTake('"')) return Refuse("a string"), "";
  std::string out;
  while (true) {
    if (at_ >= json_.size()) return FailAt(begin, "a string without its closing quote"), "";
    const char next = json_[at_];
    if (next == '"') break;
    if (next == '\\') {
      Escape(out);
    } else if (static_cast<unsigned char>(next) < 0x20) {
      Refuse("an escape sequence for a control character");
    } else {
      Utf8(out);
    }
    if (failed()) return "";
  }
  ++at_;
  return out;
}

void JsonReader::Utf8(std::string& out) {
  const size_t bytes = FirstCodePoint(json_.substr(at_)).bytes;
  if (bytes == 0) return Refuse("UTF-8");
  out += json_.substr(at_, bytes);
  at_ += bytes;
}

void JsonReader::Escape(std::string& out) {
  const size_t begin = at_;
  const char letter = at_ + 1 < json_.size() ? json_[at_ + 1] : '\0';
  if (letter == '/') {  // may be escaped, need not be
    out += letter;
    at_ += 2;
    return;
  }
  for (const ShortEscape& known : kShortEscapes) {
    if (letter != known.letter) continue;
    out += known.stands_for;
    at_ += 2;
    return;
  }
  if (letter != 'u') return Refuse("an escape sequence of JSON");
  uint32_t code = HexUnit();
  if (code >= 0xdc00 && code < 0xe000)
    return FailAt(begin, "the second half of a surrogate pair, alone");
  if (code >= 0xd800 && code < 0xdc00) {
    const bool more = json_.substr(at_).starts_with("\\u");
    const uint32_t low = more ? HexUnit() : 0;
    if (low < 0xdc00 || low >= 0xe000)
      return FailAt(begin, "the first half of a surrogate pair, alone");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  AppendUtf8(out, code);
}

/// \uXXXX: one unit of UTF-16.
uint32_t JsonReader::HexUnit() {
  const std::string_view digits = json_.substr(at_ + 2, 4);
  uint32_t unit = 0;
  // from_chars takes neither a sign nor "0x" here, and stops at the first other character.
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
  if (failure != std::errc() || end != digits.data() + 4)
    return Refuse("\\u with four hexadecimal digits"), 0;
  at_ += 6;
  return unit;
}

int64_t JsonReader::Integer() {
  SkipBlanks();
  const size_t end = std::min(json_.find_first_not_of("+-.0123456789eE", at_), json_.size());
  const std::string_view text = json_.substr(at_, end - at_);
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool integer = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
  if (!integer || (digits.size() > 1 && digits.front() == '0')) return Refuse("an integer"), 0;
  int64_t value = 0;
  const auto failure = std::from_chars(text.data(), text.data() + text.size(), value).ec;
  if (failure != std::errc()) return Refuse("an integer of 64 bits"), 0;
  at_ = end;
  return value;
}

bool JsonReader::TryWord(std::string_view word) {
  SkipBlanks();
  if (!json_.substr(at_).starts_with(word)) return false;
  at_ += word.size();
  return true;
}

std::optional<int64_t> JsonReader::IntegerOrNull() {
  SkipBlanks();
  if (!json_.substr(at_).starts_with('n')) return Integer();
  if (!TryWord("null")) Refuse("an integer or null");
  return std::nullopt;
}

bool JsonReader::Boolean() {
  if (TryWord("true")) return true;
  if (!TryWord("false")) Refuse("true or false");
  return false;
}

}  // namespace muster
