// Whether bytes are text: UTF-8 as Python's decoder takes it, without overlong forms and
// surrogates.
#pragma once

#include <string>
#include <string_view>

namespace muster::wire {

bool IsUtf8(std::string_view bytes);

/// The text with U+FFFD in place of every byte that is not part of a character.
std::string ReplaceInvalidUtf8(std::string_view bytes);

}  // namespace muster::wire
