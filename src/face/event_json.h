// The text inside an event's JSON: strings to be written and strings to be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// Appends `text` in quotes, in printable ASCII only: a line stays a line, in any terminal and any
/// encoding. Bytes that are no UTF-8 become U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);

/// Reads JSON from left to right, for objects that are known in advance: strings, integers and
/// null. Everything throws std::invalid_argument, saying where, what came and what is allowed.
class JsonReader {
 public:
  /// `what` is the thing being read, for messages. Both must outlive the reader.
  JsonReader(std::string_view what, std::string_view json) : what_(what), json_(json) {}

  /// Passes over this character, and the blanks before it.
  void Take(char expected);
  /// The same, if it is there.
  bool TryTake(char expected);
  /// Nothing but blanks is left.
  void End();

  std::string String();
  int64_t Integer();
  std::optional<int64_t> IntegerOrNull();

  [[noreturn]] void Refuse(std::string_view allowed) const;  ///< What is at the present place.
  [[noreturn]] void Fail(std::string_view problem) const;    ///< With what was just read.

 private:
  [[noreturn]] void FailAt(size_t place, std::string_view problem) const;
  void SkipBlanks();
  void Escape(std::string& out);
  uint32_t HexUnit();
  void Utf8(std::string& out);

  const std::string_view what_;
  const std::string_view json_;
  size_t at_ = 0;
};

}  // namespace muster
