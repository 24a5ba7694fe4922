#include "base/flat_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace muster::wire {

using Json = nlohmann::json;

std::string JsonString(std::string_view text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

FlatJsonWriter& FlatJsonWriter::Put(std::string_view name, std::string_view value) {
  text_ += Concat(text_.size() > 1 ? ", " : "", JsonString(name), ": ", value);
  return *this;
}

FlatJsonWriter& FlatJsonWriter::Text(std::string_view name, std::string_view value) {
  return value.empty() ? *this : Put(name, JsonString(value));
}

FlatJsonWriter& FlatJsonWriter::Number(std::string_view name, int64_t value, int64_t usual) {
  return value == usual ? *this : Put(name, Concat(value));
}

FlatJsonWriter& FlatJsonWriter::Truth(std::string_view name, bool value) {
  return value ? Put(name, "true") : *this;
}

FlatJsonWriter& FlatJsonWriter::Texts(std::string_view name,
                                      const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values)
    list += Concat(list.empty() ? "[" : ", ", JsonString(value));
  return values.empty() ? *this : Put(name, list + "]");
}

/// Receives the parts of the text from left to right, and stops at the first part that a flat
/// object cannot have: nested values take no memory.
class FlatJsonReader::Parser : public nlohmann::json_sax<Json> {
 public:
  explicit Parser(FlatJsonReader& reader) : reader_(reader) {}

  bool null() override { return Refuse("null"); }
  bool boolean(bool value) override { return Put("a boolean", value); }
  bool number_integer(number_integer_t value) override { return Put("a number", value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!std::in_range<int64_t>(value)) return Refuse("no integer of 64 bits");
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const std::string&) override {
    return Refuse("no integer of 64 bits");
  }
  bool string(std::string& value) override {
    if (!in_list_) return Put("a text", std::move(value));
    list_.push_back(std::move(value));
    return true;
  }
  bool binary(Json::binary_t&) override { return Refuse("binary"); }
  bool start_object(size_t) override {
    return std::exchange(begun_, true) ? Refuse("an object") : true;
  }
  bool end_object() override { return true; }
  bool key(std::string& name) override {
    name_ = std::move(name);
    return true;
  }
  bool start_array(size_t) override {
    if (in_list_ || !begun_) return Refuse("a list");
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return Put("a list", std::exchange(list_, {}));
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& e) override {
    // Removes the library's prefix, which repeats the position.
    const std::string_view what = e.what();
    reader_.Fail(Concat("byte ", at, ": ", Printable(what.substr(what.find(": ") + 2), 300)));
    return false;
  }

 private:
  bool Put(std::string_view kind, Value value) {
    if (!begun_) return Refuse("no object");
    if (in_list_) return Refuse(kind);
    reader_.values_.insert_or_assign(name_, std::move(value));
    return true;
  }
  bool Refuse(std::string_view kind) {
    const std::string place = begun_ ? Concat("'", Printable(name_), "'") : "the text";
    reader_.Fail(Concat(place, in_list_ ? " contains " : " is ", kind));
    return false;
  }

  FlatJsonReader& reader_;
  bool begun_ = false;
  bool in_list_ = false;
  std::string name_;
  std::vector<std::string> list_;
};

FlatJsonReader::FlatJsonReader(std::string_view what, std::string_view json) : what_(what) {
  Parser parser(*this);
  Json::sax_parse(json, &parser);
  if (!problem_.empty()) values_.clear();
}

template <typename T>
T FlatJsonReader::Get(std::string_view name, std::string_view kind, T usual) {
  const auto found = values_.find(name);
  if (found == values_.end()) return usual;
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  Fail(Concat("'", name, "' is not ", kind));
  return usual;
}

std::string FlatJsonReader::Text(std::string_view name) {
  return Get<std::string>(name, "a text", {});
}

int64_t FlatJsonReader::Number(std::string_view name, int64_t usual) {
  return Get<int64_t>(name, "an integer", usual);
}

int64_t FlatJsonReader::NumberWithin(std::string_view name, int64_t least, int64_t most) {
  if (!values_.contains(name)) Fail(Concat("'", name, "' is missing"));
  const int64_t value = Number(name);
  if (value < least || value > most)
    Fail(Concat("'", name, "' is ", value, "; ", least, " to ", most, " are allowed"));
  return value;
}

bool FlatJsonReader::Truth(std::string_view name) {
  return Get<bool>(name, "true or false", false);
}

std::vector<std::string> FlatJsonReader::Texts(std::string_view name) {
  return Get<std::vector<std::string>>(name, "a list of texts", {});
}

void FlatJsonReader::Fail(std::string_view problem) {
  if (problem_.empty()) problem_ = Concat(what_, ": ", problem);
}

Status FlatJsonReader::Outcome() const {
  if (problem_.empty()) return Ok();
  return Error{Code::kProtocol, problem_};
}

}  // namespace muster::wire
