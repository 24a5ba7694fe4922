#include "launch/core/environment.h"

#include "base/parse.h"

namespace muster {

namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

std::string Substituted(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '$') {
      out += '$';
      ++i;
      continue;
    }
    const bool braced = i + 1 < text.size() && text[i + 1] == '{';
    const size_t begin = i + (braced ? 2 : 1);
    size_t end = begin;
    while (end < text.size() && (IsLetter(text[end]) || (end > begin && IsDigit(text[end])))) ++end;
    const bool whole = !braced || (end < text.size() && text[end] == '}');
    const auto value = values.find(std::string(text.substr(begin, end - begin)));
    if (!whole || value == values.end()) {
      out += '$';  // What follows is text like any other.
      continue;
    }
    out += value->second;
    i = braced ? end : end - 1;
  }
  return out;
}

}  // namespace muster
