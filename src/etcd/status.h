// How runs in etcd stand, for people: as their leaders have last written it down.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "etcd/calls.h"
#include "rendezvous/core/run_report.h"

namespace muster {

struct EtcdStatus {
  std::vector<RunReport> runs{};
  std::vector<std::string> passed_over{};  ///< What somebody else has written there: key and why.
};

/// Of one run below `prefix`, or (an empty id) of all. kProtocol names what cannot be read of the
/// one.
Result<EtcdStatus> StatusInEtcd(EtcdCalls& calls, std::string_view prefix, std::string_view run_id,
                                Instant deadline);

}  // namespace muster
