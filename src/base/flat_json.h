// Flat JSON objects: names with texts, integers, booleans and lists of texts. Used for the events
// of a rendezvous, and for the records in etcd, which people read with etcdctl.
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

/// Appends `text` in quotes, in printable ASCII only, so that it stays one line in any terminal and
/// any encoding. Bytes that are not UTF-8 become U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);

/// Leaves out values that a reader assumes when they are missing.
class FlatJsonWriter {
 public:
  FlatJsonWriter& Text(std::string_view name, std::string_view value);
  FlatJsonWriter& Number(std::string_view name, int64_t value, int64_t usual = 0);
  FlatJsonWriter& Truth(std::string_view name, bool value);
  FlatJsonWriter& Texts(std::string_view name, const std::vector<std::string>& values);

  std::string Take() { return text_ + "}"; }

 private:
  FlatJsonWriter& Put(std::string_view name, std::string_view value);
  std::string text_ = "{";
};

/// Reads an object from any source. Names that are not read are ignored, unless RequireExactly() is
/// called. After the first problem every value reads as empty, and Outcome() returns that problem.
class FlatJsonReader {
 public:
  enum class Nulls { kRefused, kAllowed };

  /// `what` is for messages: the key whose value the text is.
  FlatJsonReader(std::string_view what, std::string_view json, Nulls nulls = Nulls::kRefused);

  std::string Text(std::string_view name);
  int64_t Number(std::string_view name, int64_t usual = 0);
  std::optional<int64_t> NumberOrNull(std::string_view name);
  /// The same, but the number must exist and be within these bounds.
  int64_t NumberWithin(std::string_view name, int64_t least, int64_t most);
  bool Truth(std::string_view name);
  std::vector<std::string> Texts(std::string_view name);
  /// Each of these names must occur exactly once, and no others.
  void RequireExactly(std::span<const std::string_view> names);
  void Fail(std::string_view problem);

  /// kProtocol if there was a problem.
  Status Outcome() const;

 private:
  using Value = std::variant<std::string, int64_t, bool, std::vector<std::string>, std::nullptr_t>;
  class Parser;
  template <typename T>
  T Get(std::string_view name, std::string_view kind, T usual);

  const std::string what_;
  std::map<std::string, Value, std::less<>> values_;
  std::string repeated_;  // a name that occurred twice
  std::string problem_;
};

}  // namespace muster::wire
