// Where the output of each worker goes, and what stands in front of its lines when they are shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/core/launch_words.h"

namespace muster {

/// Of one stream of one worker.
enum class Destination {
  kConsole,         ///< Where ours goes, as it is.
  kNothing,         ///< Thrown away.
  kFile,            ///< Its log, and nothing else.
  kFileAndConsole,  ///< Its log, and from there line by line to the console.
};

/// What the user asked for.
struct StreamWishes {
  std::vector<Streams> redirects{};      ///< By worker; those beyond the end are left alone.
  std::vector<Streams> tee{};            ///< The same.
  std::vector<int64_t> shown_workers{};  ///< Only these on the console; empty: all.
  bool without_logs = false;             ///< --log-dir /dev/null: no files, and so no echo either.
};

struct StreamPlan {
  Destination out = Destination::kConsole;
  Destination err = Destination::kConsole;

  bool operator==(const StreamPlan&) const = default;
};

/// A filter hides what would be shown; it takes nothing from the files. Without logs, redirects and
/// tee say nothing, and the filter still does: it is about the console.
StreamPlan PlanStreams(const StreamWishes& wishes, size_t worker);

struct WorkerLabel {
  std::string role{};
  int64_t rank = 0;
  size_t local_rank = 0;
  std::string host{};
  int64_t attempt = 0;
};

/// What stands in front of each line: "[role0]:" for the worker with local rank 0, or `pattern`
/// with $role_name, $rank, $local_rank, $host and $attempt filled in. No blank is added to either.
std::string LinePrefix(const WorkerLabel& label, std::string_view pattern = "");

}  // namespace muster
