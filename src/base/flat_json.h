// Flat JSON objects: names with texts, integers, booleans and lists of texts. Used for the events
// of a rendezvous, and for the records in etcd, which people read with etcdctl.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace muster::wire {

/// The text in quotes, in printable ASCII only, so that it stays one line in any terminal and any
/// encoding. Bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

/// Leaves out values that a reader assumes when they are missing, except those of Put().
class FlatJsonWriter {
 public:
  /// `value` is JSON.
  FlatJsonWriter& Put(std::string_view name, std::string_view value);
  FlatJsonWriter& Text(std::string_view name, std::string_view value);
  FlatJsonWriter& Number(std::string_view name, int64_t value, int64_t usual = 0);
  FlatJsonWriter& Truth(std::string_view name, bool value);
  FlatJsonWriter& Texts(std::string_view name, const std::vector<std::string>& values);

  std::string Take() { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

/// Reads an object from any source. Names that are not read are ignored. After the first problem
/// every value reads as empty, and Outcome() returns that problem.
class FlatJsonReader {
 public:
  /// `what` is for messages: the key whose value the text is.
  FlatJsonReader(std::string_view what, std::string_view json);

  std::string Text(std::string_view name);
  int64_t Number(std::string_view name, int64_t usual = 0);
  /// The same, but the number must exist and be within these bounds.
  int64_t NumberWithin(std::string_view name, int64_t least, int64_t most);
  bool Truth(std::string_view name);
  std::vector<std::string> Texts(std::string_view name);
  void Fail(std::string_view problem);

  /// kProtocol if there was a problem.
  Status Outcome() const;

 private:
  using Value = std::variant<std::string, int64_t, bool, std::vector<std::string>>;
  class Parser;
  template <typename T>
  T Get(std::string_view name, std::string_view kind, T usual);

  const std::string what_;
  std::map<std::string, Value, std::less<>> values_;
  std::string problem_;
};

}  // namespace muster::wire
