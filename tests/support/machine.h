// What this machine may lack: an IPv6 loopback address, cgroups. A test that needs one calls
// MUSTER_REQUIRE (contracts/need.h). Without it the test is skipped, or fails if the machine must
// have it (MUSTER_REQUIRE_IPV6=1, MUSTER_REQUIRE_CGROUPS=1; .ci/run sets both).
#pragma once

#include "contracts/need.h"

namespace muster::test {

/// An address of the loopback interface: ::1.
Need Ipv6Need();
/// A cgroup of version 2 in which this process may make others.
Need CgroupNeed();

}  // namespace muster::test
