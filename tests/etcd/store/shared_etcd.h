// One real etcd for a whole test program: a prefix of its own for each test keeps them apart.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "contracts/need.h"
#include "etcd/cluster.h"

namespace muster::test {

/// Started when first asked for, on the main thread; gone with the program.
inline EtcdCluster& SharedEtcd() {
  static EtcdCluster cluster;
  return cluster;
}

inline Need EtcdNeed() {
  return {.what = "etcd",
          .missing =
              [] { return HasEtcd() ? "" : "there is no 'etcd' with its 'etcdctl' on the PATH"; },
          .is_required =
              [] {
                const char* value = std::getenv("MUSTER_REQUIRE_ETCD");
                return value != nullptr && std::string_view(value) == "1";
              }};
}

/// A name that no other test of this program has, nor this one when it runs again.
inline std::string FreshName() {
  static int made = 0;
  return "test-" + std::to_string(++made);
}
inline std::string FreshPrefix() { return "/" + FreshName(); }

}  // namespace muster::test
