// One real etcd for a whole test program: a prefix of its own for each test keeps them apart.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "etcd/cluster.h"

namespace muster::test {

/// Started when first asked for, on the main thread; gone with the program.
inline EtcdCluster& SharedEtcd() {
  static EtcdCluster cluster;
  return cluster;
}

/// Why there is none; empty if there is one.
inline std::string EtcdMissing() {
  return HasEtcd() ? "" : "there are no programs 'etcd' and 'etcdctl' on the PATH";
}

inline bool EtcdIsRequired() {
  const char* value = std::getenv("MUSTER_REQUIRE_ETCD");
  return value != nullptr && std::string_view(value) == "1";
}

/// A prefix that no other test has.
inline std::string FreshPrefix() {
  static int made = 0;
  return "/test/" + std::to_string(++made);
}

}  // namespace muster::test

/// First in a test that needs the program.
#define MUSTER_NEEDS_ETCD()                                                            \
  do {                                                                                 \
    if (const std::string why = ::muster::test::EtcdMissing(); !why.empty()) {         \
      if (::muster::test::EtcdIsRequired()) FAIL() << "etcd is required, but " << why; \
      GTEST_SKIP() << "no etcd: " << why;                                              \
    }                                                                                  \
  } while (false)
