// Finds what a mistyped word was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace muster {

/// "; did you mean 'NAME'?", with the name that differs least from the word, in any case; empty if
/// all of them differ in half of it or more.
std::string DidYouMean(std::string_view word, std::span<const std::string> names);

}  // namespace muster
