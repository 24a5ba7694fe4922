#include "support/machine.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "os/posix/cgroup.h"
#include "support/raw_socket.h"

namespace muster::test {

namespace {

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

Need Ipv6Need() {
  return {.what = "IPv6",
          .missing = [] { return HasIpv6() ? "" : "the loopback interface has no address ::1"; },
          .is_required = [] { return IsSet("MUSTER_REQUIRE_IPV6"); }};
}

Need CgroupNeed() {
  return {.what = "cgroup",
          .missing = []() -> std::string {
            const auto made = Cgroup::Make("muster-trial-" + std::to_string(getpid()));
            if (made == nullptr) return "no cgroup of version 2 can be made here";
            return made->Remove() ? "" : "the cgroup that was made cannot be removed";
          },
          .is_required = [] { return IsSet("MUSTER_REQUIRE_CGROUPS"); }};
}

}  // namespace muster::test
