#include "launch/core/environment.h"

#include "base/text.h"

namespace muster {

namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

std::string Substituted(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  for (size_t at = text.find('$'); at != text.npos; at = text.find('$')) {
    out += text.substr(0, at);
    text.remove_prefix(at);
    const size_t begin = text.starts_with("${") ? 2 : 1;
    size_t end = begin;
    while (end < text.size() && (IsLetter(text[end]) || (end > begin && IsDigit(text[end])))) ++end;
    const auto value = values.find(std::string(text.substr(begin, end - begin)));
    const bool whole = begin == 1 || text.substr(end, 1) == "}";
    const bool known = whole && value != values.end();
    out += known ? value->second : "$";  // What follows is text like any other.
    text.remove_prefix(known ? end + begin - 1 : text.starts_with("$$") ? 2 : 1);
  }
  return out.append(text);
}

}  // namespace muster
