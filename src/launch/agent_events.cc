#include "launch/agent_events.h"

#include <fcntl.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/calendar.h"
#include "base/text.h"
#include "os/posix/file_io.h"
#include "os/posix/line_writer.h"
#include "os/posix/owned_fd.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

// Keeps the order of the keys; events have few.
using Json = nlohmann::ordered_json;

constexpr std::string_view kFilePrefix = "file:";

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// As torchrun: JSON inside of a text, and values of workers in lists of one. Readers expect both.
std::string InnerMetadata(const AgentEventRecord& event) {
  Json inner;
  if (!event.watchdog.empty()) {
    inner["watchdog_event"] = event.watchdog;
    for (const auto& [key, value] : event.watchdog_details) inner[key] = value;
    return Dump(inner);
  }
  inner["group_world_size"] = OrNull(event.group_world_size);
  inner["entry_point"] = event.entry_point.substr(event.entry_point.rfind('/') + 1);  // npos + 1: 0
  if (const auto& worker = event.worker) {
    const auto one = [](Json value) { return Json::array({std::move(value)}); };
    inner["local_rank"] = one(worker->local_rank);
    inner["role_rank"] = one(worker->ranks.first_role_rank + worker->local_rank);
    inner["role_world_size"] = one(worker->ranks.role_world_size);
    inner["exit_code"] = one(OrNull(worker->failed_with));
    // Only for a failure; worker_id always has the pid.
    inner["worker_pid"] = one(worker->failed_with ? Json(worker->pid) : Json());
  }
  return Dump(inner);
}

bool ShowsInfo(std::string_view log_level) {
  constexpr std::string_view kHigher[] = {"warning", "warn", "error", "critical", "fatal"};
  return std::ranges::find(kHigher, LowerCase(Trim(log_level))) == std::end(kHigher);
}

using Console = std::function<void(std::string_view)>;

void WriteToStderr(std::string_view line) { StandardError().Write(Concat(line, '\n')); }

Result<AgentEventSink> OpenFile(const std::string& path, Console console) {
  // O_NONBLOCK: a pipe without a reader is refused now, and one whose reader stops reading does not
  // block the agent.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const auto file = std::make_shared<OwnedFd>(open(path.c_str(), kFlags, 0666));
  if (!file->is_open())
    return SystemError(Concat("events cannot be written to '", Printable(path), "'"));
  // Reported once: a full disk would fail every event.
  return AgentEventSink([file, path, console = std::move(console), has_reported = false](
                            const AgentEventRecord& event, WallTime now) mutable {
    // One write for a line, so that lines of several writers do not mix.
    if (WriteAll(file->get(), event.ToJsonLine(now) + '\n') || has_reported) return;
    console(Concat("muster: events are lost: ", SystemError(Printable(path)).message));
    has_reported = true;
  });
}

}  // namespace

std::string AgentEventRecord::ToJsonLine(std::optional<WallTime> now) const {
  Json metadata = {
      {"run_id", run_id},
      {"global_rank", worker ? Json(worker->ranks.first_rank + worker->local_rank) : Json()},
      {"group_rank", OrNull(group_rank)},
      {"worker_id", worker ? Json(Concat(worker->pid)) : Json()},
      {"role", role},
      {"hostname", hostname},
      {"state", state},
      {"total_run_time", total_run_time_seconds},
      {"rdzv_backend", rdzv_backend},
      {"raw_error", OrNull(raw_error)},
      {"metadata", InnerMetadata(*this)},
      {"agent_restarts", agent_restarts},
  };
  if (watchdog.empty()) metadata["duration_ms"] = OrNull(duration_ms);
  Json event = {
      {"name", watchdog.empty() ? Concat("torchelastic.worker.status.", state) : watchdog},
      {"source", worker ? "WORKER" : "AGENT"},
      {"timestamp", 0},
      {"metadata", std::move(metadata)},
  };
  if (now) event["time"] = UtcText(*now, 6);
  return Dump(event);
}

Result<AgentEventSink> OpenAgentEventSink(const AgentEventSinkOptions& options) {
  const std::string_view name = options.name;
  Console console = options.console ? options.console : WriteToStderr;
  if (name == "console" && ShowsInfo(options.log_level)) {
    return AgentEventSink([console = std::move(console)](const AgentEventRecord& event, WallTime) {
      console(event.ToJsonLine());
    });
  }
  if (name == "null" || name == "dynamic_rendezvous" || name == "console") return AgentEventSink();
  if (name.starts_with(kFilePrefix) && name.size() > kFilePrefix.size())
    return OpenFile(std::string(name.substr(kFilePrefix.size())), std::move(console));
  return MakeError(Code::kInvalid, "there is no event log handler '", Printable(name),
                   "'; known are null, console and file:PATH");
}

}  // namespace muster
