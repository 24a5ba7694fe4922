// The exception of a call, as text.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace muster::test {

/// The message of the E that `call` throws. Any other exception passes through and fails the test;
/// so does none.
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
