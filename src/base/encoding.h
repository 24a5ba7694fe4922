// Bytes as printable text: base64, and percent encoding as in URLs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace muster {

/// With the standard alphabet, on one line and padded.
std::string Base64Encode(std::string_view bytes);

/// As lenient as Python's decoder, because peers rely on it: characters outside the alphabet (such
/// as line breaks) are skipped, and what follows the padding is ignored. kInvalid: the padding is
/// missing or incomplete.
Result<std::string> Base64Decode(std::string_view text);

/// Writes every byte that is not plain as %XX. '%' must not be plain.
std::string PercentEncoded(std::string_view text, bool (*is_plain)(char));

/// nullopt: a '%' that is not followed by two hexadecimal digits.
std::optional<std::string> PercentDecoded(std::string_view text);

}  // namespace muster
