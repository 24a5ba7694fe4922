// What a call throws, as text to look at.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace muster::test {

/// The message of the E that `call` throws. Anything else that it throws goes on (and fails the
/// test); so does nothing.
template <typename E, typename F>
std::string ErrorOf(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace muster::test
