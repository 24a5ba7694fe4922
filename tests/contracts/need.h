// Something that a test needs and this machine may lack: PyTorch, etcd, or a capability of its own
// (support/machine.h).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace muster::test {

struct Need {
  std::string what{};  ///< "PyTorch"
  /// The reason why it is missing; empty if it is there. Null: nothing is needed.
  std::function<std::string()> missing{};
  /// Whether its absence is a failure; otherwise the test is skipped.
  bool (*is_required)() = nullptr;
};

}  // namespace muster::test

/// First in a test, or in its SetUp(). ctest recognises a skipped test by "no PyTorch:" or "no
/// etcd:"; the failure must not look like that.
#define MUSTER_REQUIRE(need)                                                          \
  do {                                                                                \
    if (!(need).missing) break;                                                       \
    if (const std::string why = (need).missing(); !why.empty()) {                     \
      if ((need).is_required()) FAIL() << (need).what << " is required, but " << why; \
      GTEST_SKIP() << "no " << (need).what /* PyTorch or etcd */ << ": " << why;      \
    }                                                                                 \
  } while (false)
