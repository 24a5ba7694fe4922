// One real etcd for a whole test program. Each test has a prefix of its own.
#pragma once

#include <string>

#include "etcd/cluster.h"

namespace muster::test {

/// Starts with the first call, on the main thread, and ends with the program.
inline EtcdCluster& SharedEtcd() {
  static EtcdCluster cluster;
  return cluster;
}

/// A name that no other test of this program has, also if the test is repeated.
inline std::string FreshName() {
  static int made = 0;
  return "test-" + std::to_string(++made);
}
inline std::string FreshPrefix() { return "/" + FreshName(); }

}  // namespace muster::test
