// Base64 with the standard alphabet, on one line and padded.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace muster {

std::string Base64Encode(std::string_view bytes);

/// As lenient as Python's decoder, because peers rely on it: characters outside the alphabet (such
/// as line breaks) are skipped, and what follows the padding is ignored. kInvalid: the padding is
/// missing or incomplete.
Result<std::string> Base64Decode(std::string_view text);

}  // namespace muster
