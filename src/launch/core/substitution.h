// Variables in texts of the user.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace muster {

/// "$name" and "${name}" become their values, "$$" becomes "$", and everything else stays.
std::string Substituted(std::string_view text, const std::map<std::string, std::string>& values);

}  // namespace muster
