// JSON: strings to be written, and objects that are known in advance to be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// Appends `text` in quotes, in printable ASCII only: a line stays a line, in any terminal and any
/// encoding. Bytes that are no UTF-8 become U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);

/// Reads JSON from left to right, for objects that are known in advance: strings, integers,
/// booleans and null. After the first thing that is not as expected, everything reads as nothing:
/// one look at the end tells.
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
  bool Boolean();
  bool AtString();  ///< A string comes next.
  bool AtWord();    ///< true, false or null does.

  void Refuse(std::string_view allowed);  ///< What is at the present place.
  void Fail(std::string_view problem);    ///< With what was just read.

  bool failed() const { return !problem_.empty(); }
  /// Where, what came and what is allowed.
  const std::string& problem() const { return problem_; }

 private:
  void FailAt(size_t place, std::string_view problem);
  void SkipBlanks();
  bool TryWord(std::string_view word);
  void Escape(std::string& out);
  uint32_t HexUnit();
  void Utf8(std::string& out);

  const std::string_view what_;
  const std::string_view json_;
  size_t at_ = 0;
  std::string problem_;
};

}  // namespace muster
