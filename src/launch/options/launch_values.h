// Values of the launcher's command line, read as torchrun reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launch/core/stream_plan.h"

namespace muster {

struct NodeCount {
  int64_t min = 1;
  int64_t max = 1;

  bool operator==(const NodeCount&) const = default;
};
/// "4", or "2:8" for an elastic job.
Result<NodeCount> ParseNodeCount(std::string_view text);

/// "3": of every worker; "0:1,1:3": of these workers, and none of the others.
Result<StreamChoice> ParseStreams(std::string_view text);

/// "0,2".
Result<std::vector<int64_t>> ParseWorkerList(std::string_view text);

/// "a,b": two texts; "a,,b" is the one text "a,b".
std::vector<std::string> ParseFilters(std::string_view text);

struct SignalList {
  std::vector<int> numbers;          ///< Each once, in their order.
  std::vector<std::string> unknown;  ///< To be ignored, with a warning.

  bool operator==(const SignalList&) const = default;
};
/// "SIGTERM,SIGUSR1". kInvalid: SIGKILL and SIGSTOP, which no program can handle.
Result<SignalList> ParseSignals(std::string_view text);

}  // namespace muster
