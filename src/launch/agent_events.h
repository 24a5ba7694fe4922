// The life of an agent and its workers as events, one JSON object per line, with torchrun's names
// and keys; and their sinks. One thread. An event that cannot be written never fails the job.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "launch/core/agent_machine.h"
#include "launch/core/ranks.h"

namespace muster {

/// What an event of a worker contains in addition to that of its agent.
struct EventWorker {
  AssignedRanks ranks{};  ///< Of the first worker of its node.
  int64_t local_rank = 0;
  int64_t pid = 0;
  std::optional<ExitCode> failed_with{};  ///< Only for a worker that failed.
};

struct AgentEventRecord {
  /// RENDEZVOUS, ASSIGN_WORKER_RANKS, START, SUCCEEDED, FAILED, TERMINATED; RUNNING for a watchdog.
  std::string state{};
  /// Only for a watchdog, whose events have their own names: "watchdog started".
  std::string watchdog{};
  std::vector<std::pair<std::string, std::string>> watchdog_details{};  ///< Such as "signal".
  std::optional<EventWorker> worker{};  ///< None: an event of the agent.

  std::string run_id{};
  std::optional<int64_t> group_rank{};        ///< None before the first round.
  std::optional<int64_t> group_world_size{};  ///< None before the first round.
  std::string role = "default";
  std::string hostname{};
  int64_t total_run_time_seconds = 0;
  std::string rdzv_backend{};
  std::string entry_point{};  ///< Shown without its folders.
  int64_t agent_restarts = 0;
  std::optional<std::string> raw_error{};
  std::optional<int64_t> duration_ms{};

  /// In printable ASCII, without a newline. "timestamp" is 0, as torchrun's always is. With `now`
  /// there is an additional key, "time": when it happened, in UTC.
  std::string ToJsonLine(std::optional<WallTime> now = std::nullopt) const;
};

/// Receives events. Empty: events are not needed, and need not be created.
using AgentEventSink = std::function<void(const AgentEventRecord& event, WallTime now)>;

struct AgentEventSinkOptions {
  /// null, console (as LOGLEVEL allows), dynamic_rendezvous (torchrun's own, which writes nothing),
  /// or file:PATH, which appends lines with the time.
  std::string name = "null";
  std::string log_level{};  ///< LOGLEVEL; events are of level INFO. Unknown ones count as INFO.
  /// Where `console` writes, without the line's end; empty: standard error. Must not block.
  std::function<void(std::string_view line)> console{};
};

/// kInvalid: there is no such sink; the message lists the existing ones. kUnavailable: the file
/// cannot be opened.
Result<AgentEventSink> OpenAgentEventSink(const AgentEventSinkOptions& options);

}  // namespace muster
