// The status of runs in etcd for people, as last written by their leaders.
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
  std::vector<std::string> ignored{};  ///< Foreign values there: the key, and what is wrong.
};

/// Of one run below `prefix`, or of all (an empty id). kProtocol: a key of that run cannot be
/// read.
Result<EtcdStatus> StatusInEtcd(EtcdCalls& calls, std::string_view prefix, std::string_view run_id,
                                Instant deadline);

}  // namespace muster
