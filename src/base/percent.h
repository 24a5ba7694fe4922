// Percent encoding, as in URLs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

/// Writes every byte that is not plain as %XX. '%' must not be plain.
std::string PercentEncoded(std::string_view text, bool (*is_plain)(char));

/// nullopt: a '%' that is not followed by two hexadecimal digits.
std::optional<std::string> PercentDecoded(std::string_view text);

}  // namespace muster
