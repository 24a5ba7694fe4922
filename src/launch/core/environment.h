// Environment variables by name, and variables in texts of the user.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

using Environment = std::map<std::string, std::string>;

/// Nothing: it is not set.
inline std::optional<std::string> Variable(const Environment& environment,
                                           const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::nullopt : std::optional(found->second);
}

/// Empty also if it is not set.
inline std::string VariableOrEmpty(const Environment& environment, const std::string& name) {
  return Variable(environment, name).value_or("");
}

/// "$name" and "${name}" become their values, "$$" becomes "$", and everything else stays.
std::string Substituted(std::string_view text, const std::map<std::string, std::string>& values);

}  // namespace muster
