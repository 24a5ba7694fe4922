// Where the output of each worker goes, and the prefix of its lines on the console.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// Which of a worker's streams.
struct Streams {
  bool out = false;
  bool err = false;

  bool operator==(const Streams&) const = default;
};

/// The same for each worker.
struct StreamChoice {
  Streams all{};  ///< Of workers that the map does not name.
  std::map<size_t, Streams> by_worker{};

  Streams Of(size_t worker) const;
  bool operator==(const StreamChoice&) const = default;
};

/// Of one stream of one worker.
enum class Destination {
  kConsole,         ///< The launcher's own stream, unchanged.
  kNothing,         ///< Discarded.
  kFile,            ///< Only its log.
  kFileAndConsole,  ///< Its log, and from there line by line to the console.
};

/// The options of the user.
struct StreamOptions {
  StreamChoice redirects{};
  StreamChoice tee{};
  std::vector<int64_t> shown_workers{};  ///< Only these on the console; empty: all.
  bool without_logs = false;             ///< --log-dir /dev/null: no files, and therefore no echo.

  bool operator==(const StreamOptions&) const = default;
};

struct StreamPlan {
  Destination out = Destination::kConsole;
  Destination err = Destination::kConsole;

  bool operator==(const StreamPlan&) const = default;
};

/// A filter hides output of the console; the files keep everything. Without logs, redirects and tee
/// have no effect, but the filter has.
StreamPlan PlanStreams(const StreamOptions& options, size_t worker);

struct WorkerLabel {
  std::string role{};
  int64_t rank = 0;
  size_t local_rank = 0;
  std::string host{};
  int64_t attempt = 0;
};

/// The prefix of each line: "[role0]:" for the worker with local rank 0, or `pattern`
/// with $role_name, $rank, $local_rank, $host and $attempt filled in. No blank is added to either.
std::string LinePrefix(const WorkerLabel& label, std::string_view pattern = "");

}  // namespace muster
