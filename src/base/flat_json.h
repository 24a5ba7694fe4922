// Flat JSON objects: names with texts, integers, booleans and lists of texts. Events of a
// rendezvous, and the records in etcd, which people read with etcdctl.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace muster::wire {

/// Appends `text` in quotes, in printable ASCII only: a line stays a line, in any terminal and any
/// encoding. Bytes that are no UTF-8 become U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);

/// Leaves out a value that a reader assumes where it is missing.
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

/// Reads an object from any source. Other names than those read are ignored, unless
/// RequireExactly() is called. After the first problem everything reads as nothing: Outcome()
/// reports it.
class FlatJsonReader {
 public:
  enum class Nulls { kRefused, kAllowed };

  /// `what` is for messages: the key that the text was found under.
  FlatJsonReader(std::string_view what, std::string_view json, Nulls nulls = Nulls::kRefused);

  std::string Text(std::string_view name);
  int64_t Number(std::string_view name, int64_t usual = 0);
  std::optional<int64_t> NumberOrNull(std::string_view name);
  /// The same, which must be there and within these bounds.
  int64_t NumberWithin(std::string_view name, int64_t least, int64_t most);
  bool Truth(std::string_view name);
  std::vector<std::string> Texts(std::string_view name);
  /// All of these names must be there once, and no others.
  void RequireExactly(std::span<const std::string_view> names);
  void Fail(std::string_view problem);

  /// kProtocol, if there was a problem.
  Status Outcome() const;

 private:
  using Value = std::variant<std::string, int64_t, bool, std::vector<std::string>, std::nullptr_t>;
  class Parser;
  template <typename T>
  T Get(std::string_view name, std::string_view kind, T usual);

  const std::string what_;
  std::map<std::string, Value, std::less<>> values_;
  std::string repeated_;  // a name that came twice
  std::string problem_;
};

}  // namespace muster::wire
