// What this machine may lack, and tests then cannot show: an IPv6 loopback address, cgroups. A test
// that needs one says so with MUSTER_REQUIRE (contracts/need.h): it is skipped where there is none,
// and fails where that is demanded of the machine (MUSTER_REQUIRE_IPV6=1, MUSTER_REQUIRE_CGROUPS=1;
// .ci/run sets both).
#pragma once

#include "contracts/need.h"

namespace muster::test {

/// An address of the loopback interface: ::1.
Need Ipv6Need();
/// A cgroup of version 2 in which this process may make others.
Need CgroupNeed();

}  // namespace muster::test
