// What a test cannot do without, and this machine may not have: PyTorch, etcd, or something of its
// own (support/machine.h).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace muster::test {

struct Need {
  std::string what{};  ///< "PyTorch"
  /// Why it cannot be had here; empty if it can. Null: nothing is needed.
  std::function<std::string()> missing{};
  /// Whether that is a failure, or skips the test.
  bool (*is_required)() = nullptr;
};

}  // namespace muster::test

/// First in a test, or in its SetUp(). What skips it for ctest is "no PyTorch:" or "no etcd:": the
/// failure must not look like that.
#define MUSTER_REQUIRE(need)                                                          \
  do {                                                                                \
    if (!(need).missing) break;                                                       \
    if (const std::string why = (need).missing(); !why.empty()) {                     \
      if ((need).is_required()) FAIL() << (need).what << " is required, but " << why; \
      GTEST_SKIP() << "no " << (need).what /* PyTorch or etcd */ << ": " << why;      \
    }                                                                                 \
  } while (false)
