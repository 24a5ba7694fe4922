// One node's part of a job: commands and environments of its workers, their logs and their echo on
// the console, events, and the records of failures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent.h"
#include "launch/agent_events.h"
#include "launch/core/failure_report.h"
#include "launch/logs/follower.h"
#include "launch/logs/log_tree.h"
#include "launch/watchdog.h"
#include "launch/workers/worker_environment.h"
#include "os/ports/clock.h"
#include "os/posix/owned_fd.h"

namespace muster {

struct JobOptions {
  LaunchOptions launch{};     ///< With an interpreter and an id; `workers` is still a word.
  std::string entry_point{};  ///< Its name in reports.
  Environment inherited{};
  size_t workers = 1;
  std::vector<std::vector<int>> cpus{};  ///< By worker; empty: no binding.
  bool uses_agent_store = true;
  bool caller_reports = false;  ///< A Python program that raises the error: nothing is printed.
  std::string timer_file{};     ///< The watchdog's pipe, if the environment does not name one.
  /// A line for the user; `is_detail` lines are for --verbose.
  std::function<void(const std::string& line, bool is_detail)> log{};
  std::function<std::string()> host_name{};  ///< Called when it is needed: it may take a while.
  std::function<void()> on_joining{};        ///< Starts to show what the node waits for ...
  std::function<void()> on_joined{};         ///< ... and ends it.
};

class JobHost final : public AgentHost {
 public:
  JobHost(JobOptions options, LogTree logs, AgentEventSink events, Clock& clock);

  // --- AgentHost
  void OnJoining() override { options_.on_joining(); }
  Result<std::vector<WorkerCommand>> Prepare(const Placement& place, int64_t restarts) override;
  void OnStarted(size_t worker, int64_t pid) override;
  void OnEnded(size_t worker, int64_t pid, ExitCode code) override;
  std::string DescribeCause(const std::vector<WorkerFailure>& failures) override;
  void OnAttemptOver(const std::vector<WorkerFailure>& failures) override;
  void Log(const std::string& line) override { options_.log(line, false); }

  /// Blocks until everything that workers wrote has been shown.
  void FinishOutput();
  /// The last events: of the workers, and of the agent, which has succeeded also if workers failed.
  /// `error` is a failure of the agent itself.
  void RecordEnd(const std::string& error);

  /// Of the last attempt.
  const std::vector<FailureRecord>& failures() const { return failures_; }
  const std::optional<Placement>& place() const { return place_; }
  int64_t restarts() const { return restarts_; }
  std::string host_name() const { return options_.host_name(); }
  const JobOptions& options() const { return options_; }
  /// kUnavailable if the disk of the logs is full, which may be why workers failed.
  Status CheckRoom() const { return logs_.CheckRoom(); }

 private:
  struct Worker {
    int64_t pid = 0;
    std::optional<ExitCode> code{};
    int64_t ended_at = 0;  ///< Wall clock, microseconds.
  };

  Result<WorkerCommand> CommandOf(size_t worker);
  /// The file for a stream of a worker; empty: the launcher's own stream.
  Result<std::string> OpenStream(size_t worker, int stream, Destination to);
  FailureRecord RecordOf(const WorkerFailure& failure) const;
  Status StartWatchdog();
  void TakeExpiries();
  void RecordWatchdog(std::string name, const TimerRequest* timer = nullptr);
  AgentEventRecord EventNow(std::string state) const;
  void Record(std::string state, std::optional<EventWorker> worker,
              std::optional<Duration> took = {}, std::optional<std::string> error = {});
  EventWorker AsEvent(size_t worker) const;

  const JobOptions options_;
  LogTree logs_;
  const AgentEventSink events_;
  Clock& clock_;
  const Instant began_;
  std::unique_ptr<Follower> follower_;  ///< Exists once there is a file to follow.
  std::unique_ptr<Watchdog> watchdog_;  ///< Exists while there are workers, if it is enabled.
  std::vector<TimerRequest> expired_;   ///< In this attempt, and the signal was sent.
  int64_t watchdogs_ = 0;               ///< That were started.
  AttemptLogs attempt_;
  std::optional<Placement> place_;
  int64_t restarts_ = 0;
  std::vector<Worker> workers_;
  OwnedFd siblings_[2];  ///< A pipe; open until all workers that get its ends have been started.
  std::vector<FailureRecord> failures_;
};

}  // namespace muster
