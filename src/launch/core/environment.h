// Environment variables by name.
#pragma once

#include <map>
#include <optional>
#include <string>

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

}  // namespace muster
