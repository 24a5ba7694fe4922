// One real etcd for a whole test program: a prefix of its own for each test keeps them apart.
#pragma once

#include <string>

#include "etcd/cluster.h"

namespace muster::test {

/// Started when first asked for, on the main thread; gone with the program.
inline EtcdCluster& SharedEtcd() {
  static EtcdCluster cluster;
  return cluster;
}

/// A name that no other test of this program has, nor this one when it runs again.
inline std::string FreshName() {
  static int made = 0;
  return "test-" + std::to_string(++made);
}
inline std::string FreshPrefix() { return "/" + FreshName(); }

}  // namespace muster::test
