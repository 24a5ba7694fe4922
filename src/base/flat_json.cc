#include "base/flat_json.h"

#include "base/json.h"
#include "base/text.h"

namespace muster::wire {

void FlatJsonWriter::Name(std::string_view name) {
  if (text_.size() > 1) text_ += ", ";
  AppendJsonString(text_, name);
  text_ += ": ";
}

FlatJsonWriter& FlatJsonWriter::Text(std::string_view name, std::string_view value) {
  if (value.empty()) return *this;
  Name(name);
  AppendJsonString(text_, value);
  return *this;
}

FlatJsonWriter& FlatJsonWriter::Number(std::string_view name, int64_t value, int64_t usual) {
  if (value == usual) return *this;
  Name(name);
  text_ += Concat(value);
  return *this;
}

FlatJsonWriter& FlatJsonWriter::Truth(std::string_view name, bool value) {
  if (!value) return *this;
  Name(name);
  text_ += "true";
  return *this;
}

FlatJsonWriter& FlatJsonWriter::Texts(std::string_view name,
                                      const std::vector<std::string>& values) {
  if (values.empty()) return *this;
  Name(name);
  for (const std::string& value : values) {
    text_ += &value == &values.front() ? "[" : ", ";
    AppendJsonString(text_, value);
  }
  text_ += "]";
  return *this;
}

FlatJsonReader::FlatJsonReader(std::string_view what, std::string_view json) : what_(what) {
  Read(json);
}

void FlatJsonReader::Read(std::string_view json) {
  JsonReader in(what_, json);
  in.Take('{');
  if (!in.TryTake('}')) {
    do {
      const std::string name = in.String();
      in.Take(':');
      if (in.failed()) break;
      if (in.AtString()) {
        values_[name] = in.String();
      } else if (in.AtWord()) {
        values_[name] = in.Boolean();
      } else if (in.TryTake('[')) {
        std::vector<std::string> texts;
        if (!in.TryTake(']')) {
          do texts.push_back(in.String());
          while (in.TryTake(','));
          in.Take(']');
        }
        values_[name] = std::move(texts);
      } else {
        values_[name] = in.Integer();
      }
    } while (in.TryTake(','));
    in.Take('}');
  }
  in.End();
  problem_ = in.problem();
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
