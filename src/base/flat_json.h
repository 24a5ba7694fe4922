// Flat JSON objects: names with texts, numbers, truths and lists of texts. What people read with
// etcdctl, and what muster reads back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace muster::wire {

/// Writes one. What is as it would be read if it were not there is left out.
class FlatJsonWriter {
 public:
  FlatJsonWriter& Text(std::string_view name, std::string_view value);
  FlatJsonWriter& Number(std::string_view name, int64_t value, int64_t usual = 0);
  FlatJsonWriter& Truth(std::string_view name, bool value);
  FlatJsonWriter& Texts(std::string_view name, const std::vector<std::string>& values);

  std::string Take() { return text_ + "}"; }

 private:
  void Name(std::string_view name);
  std::string text_ = "{";
};

/// Reads one that anybody may have written. Names that are not asked for are nobody's business; a
/// value of another kind than asked for is a problem, told at the end.
class FlatJsonReader {
 public:
  /// `what` is for messages: the key that it was found under.
  FlatJsonReader(std::string_view what, std::string_view json);

  std::string Text(std::string_view name);
  int64_t Number(std::string_view name, int64_t usual = 0);
  /// The same, which must be there and within these bounds.
  int64_t NumberWithin(std::string_view name, int64_t least, int64_t most);
  bool Truth(std::string_view name);
  std::vector<std::string> Texts(std::string_view name);
  void Fail(std::string_view problem);

  /// kProtocol, if there was a problem.
  Status Outcome() const;

 private:
  using Value = std::variant<std::string, int64_t, bool, std::vector<std::string>>;
  void Read(std::string_view json);
  template <typename T>
  T Get(std::string_view name, std::string_view kind, T usual);

  const std::string what_;
  std::map<std::string, Value, std::less<>> values_;
  std::string problem_;
};

}  // namespace muster::wire
