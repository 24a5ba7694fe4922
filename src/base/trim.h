// Removing blanks around user input.
#pragma once

#include <string_view>

namespace muster {

/// The text without ASCII white space at both ends.
constexpr std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace muster
