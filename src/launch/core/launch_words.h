// What users write on the launcher's command line, read as torchrun reads it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace muster {

struct NodeCount {
  int64_t min = 1;
  int64_t max = 1;

  bool operator==(const NodeCount&) const = default;
};
/// "4", or "2:8" where nodes may come and go.
Result<NodeCount> ParseNodeCount(std::string_view text);

/// Which of a worker's streams.
struct Streams {
  bool out = false;
  bool err = false;

  bool operator==(const Streams&) const = default;
};
/// "3": of every worker; "0:1,1:3": of these workers, and none of the others. By worker.
Result<std::vector<Streams>> ParseStreams(std::string_view text, size_t workers);

/// "0,2".
Result<std::vector<int64_t>> ParseWorkerList(std::string_view text);

/// "a,b": two of them; "a,,b" is the one text "a,b".
std::vector<std::string> ParseNeedles(std::string_view text);

/// "$name" and "${name}" become their values, "$$" becomes "$", and everything else stays.
std::string Substituted(std::string_view text, const std::map<std::string, std::string>& values);

/// The device that a worker is to see as its only one: its entry in CUDA_VISIBLE_DEVICES, or its
/// own number where that is not set.
Result<std::string> OnlyDeviceOf(size_t worker, const std::optional<std::string>& visible);

}  // namespace muster
