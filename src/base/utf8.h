// UTF-8 as Python's decoder accepts it: no overlong forms, no surrogates.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace muster {

/// Bytes of the character at the beginning; 0 if there is none.
size_t Utf8CharacterBytes(std::string_view bytes);

bool IsUtf8(std::string_view bytes);

/// The first `head` and the last `tail` bytes, or a little less: whole characters only. The text is
/// UTF-8 and not shorter than either.
std::pair<std::string_view, std::string_view> EndsOf(std::string_view text, size_t head,
                                                     size_t tail);

/// The text with U+FFFD in place of every byte that is not part of a character.
std::string ReplaceInvalidUtf8(std::string_view bytes);

}  // namespace muster
