#include "launch/job_host.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/text.h"
#include "launch/logs/error_file.h"
#include "launch/logs/failure_json.h"
#include "os/posix/system_error.h"

namespace muster {

namespace {

std::string Counted(int64_t count, const char* one, const char* many) {
  return Concat(count, " ", count == 1 ? one : many);
}

}  // namespace

JobHost::JobHost(JobOptions options, LogTree logs, AgentEventSink events, Clock& clock)
    : options_(std::move(options)),
      logs_(std::move(logs)),
      events_(std::move(events)),
      clock_(clock),
      began_(clock.Now()) {}

// ----------------------------------------------------------------------------------------------
// an attempt

Result<std::vector<WorkerCommand>> JobHost::Prepare(const Placement& place, int64_t restarts) {
  options_.on_joined();
  // Before `place_` changes: torchrun's events of a rendezvous contain the place before it.
  Record("RENDEZVOUS", std::nullopt, place.formed_in);
  Record("ASSIGN_WORKER_RANKS", std::nullopt, Duration{});
  place_ = place;
  restarts_ = restarts;
  const size_t count = options_.workers;
  workers_.assign(count, {});
  failures_.clear();
  const int64_t left = options_.launch.max_restarts - restarts;
  options_.log(
      Concat("round ", place.round, ": ", Counted(place.group_world_size, "node", "nodes"), ", ",
             Counted(place.ranks.world_size, "worker", "workers"), ", formed in ",
             Milliseconds(place.formed_in), " ms, ", Counted(left, "restart", "restarts"), " left"),
      place.group_world_size == 1 && restarts == 0);
  MUSTER_TRY(attempt_, logs_.Begin(restarts, count));
  MUSTER_CHECK_OK(StartWatchdog());
  if (options_.launch.command.run_path && count > 1) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("no pipe for --run-path");
    for (size_t i = 0; i < 2; ++i) siblings_[i] = OwnedFd(ends[i]);
  }
  std::vector<WorkerCommand> commands;
  for (size_t worker = 0; worker < count; ++worker) {
    MUSTER_TRY(WorkerCommand command, CommandOf(worker));
    commands.push_back(std::move(command));
  }
  return commands;
}

Result<WorkerCommand> JobHost::CommandOf(size_t worker) {
  MUSTER_TRY(const Environment environment,
             WorkerEnvironment(options_.inherited, options_.launch,
                               {.place = *place_,
                                .workers = options_.workers,
                                .uses_agent_store = options_.uses_agent_store,
                                .worker = worker,
                                .restarts = restarts_,
                                .error_file = attempt_.ErrorFile(worker),
                                .timer_file = watchdog_ ? watchdog_->path() : ""}));
  const StreamPlan plan = PlanStreams(options_.launch.streams, worker);
  WorkerCommand command{.arguments = WorkerArguments(options_.launch.command, worker),
                        .environment = ToLines(environment)};
  if (!options_.cpus.empty()) command.cpus = options_.cpus[worker];
  if (siblings_[0].is_open()) command.descriptors = {siblings_[0].get(), siblings_[1].get()};
  MUSTER_TRY(command.output_path, OpenStream(worker, STDOUT_FILENO, plan.out));
  MUSTER_TRY(command.error_path, OpenStream(worker, STDERR_FILENO, plan.err));
  return command;
}

Result<std::string> JobHost::OpenStream(size_t worker, int stream, Destination to) {
  if (to == Destination::kConsole) return std::string();
  if (to == Destination::kNothing) return std::string("/dev/null");
  const bool is_error = stream == STDERR_FILENO;
  const std::string path = is_error ? attempt_.ErrPath(worker) : attempt_.OutPath(worker);
  if (to != Destination::kFileAndConsole) return path;
  if (!follower_) {
    MUSTER_TRY(follower_, Follower::Open({.color = !options_.inherited.contains("NO_COLOR"),
                                          .log = [this](LogLevel, std::string_view line) {
                                            options_.log(std::string(line), false);
                                          }}));
  }
  // Finding the name of the host may take a while.
  const std::string& pattern = options_.launch.prefix_template;
  const bool names_host = pattern.find("host") != std::string::npos;
  const WorkerLabel label{.role = options_.launch.role,
                          .rank = place_->ranks.first_rank + static_cast<int64_t>(worker),
                          .local_rank = worker,
                          .host = names_host ? options_.host_name() : "",
                          .attempt = restarts_};
  const auto& filters = is_error ? options_.launch.error_filters : options_.launch.output_filters;
  const std::string filtered = is_error ? attempt_.FilteredErr() : attempt_.FilteredOut();
  MUSTER_CHECK_OK(follower_->Follow({.path = path,
                                     .prefix = LinePrefix(label, pattern),
                                     .console = stream,
                                     .worker = worker,
                                     .filters = filters,
                                     .duplicate_to = filters.empty() ? "" : filtered}));
  return path;
}

void JobHost::OnStarted(size_t worker, int64_t pid) {
  workers_[worker].pid = pid;
  if (worker + 1 == workers_.size())
    for (OwnedFd& end : siblings_) end.Close();
  Record("START", AsEvent(worker));
}

void JobHost::OnEnded(size_t worker, int64_t pid, ExitCode code) {
  TakeExpiries();
  Worker& ended = workers_[worker];
  ended.code = code;
  ended.ended_at = static_cast<int64_t>(clock_.Wall());
  options_.log(Concat("worker ", worker, " (pid ", pid, ") ",
                      code < 0 ? Concat("was ended by ", SignalName(-code))
                               : Concat("ended with status ", code)),
               true);
}

void JobHost::OnAttemptOver(const std::vector<WorkerFailure>& failures) {
  TakeExpiries();
  if (watchdog_) {
    watchdog_.reset();
    RecordWatchdog("watchdog stopped");
  }
  for (const WorkerFailure& failure : failures) failures_.push_back(RecordOf(failure));
  if (follower_) follower_->Settle();
}

void JobHost::FinishOutput() {
  if (follower_) follower_->Finish();
}

// ----------------------------------------------------------------------------------------------
// the watchdog

Status JobHost::StartWatchdog() {
  expired_.clear();
  if (VariableOrEmpty(options_.inherited, "TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return Ok();
  std::string path = VariableOrEmpty(options_.inherited, "TORCHELASTIC_TIMER_FILE");
  // A new name for each attempt, so that remaining processes of an old one cannot write to it.
  if (path.empty())
    path = watchdogs_ == 0 ? options_.timer_file : Concat(options_.timer_file, '.', watchdogs_);
  ++watchdogs_;
  const auto log = [this](const std::string& line) { options_.log(line, false); };
  MUSTER_TRY(watchdog_, Watchdog::Open(std::move(path), clock_, log));
  RecordWatchdog("watchdog started");
  return Ok();
}

// On the agent's thread: events are recorded there, and failures described.
void JobHost::TakeExpiries() {
  if (!watchdog_) return;
  for (TimerExpiry& expiry : watchdog_->TakeExpiries()) {
    RecordWatchdog("timer expired", &expiry.timer);
    if (!expiry.was_sent) continue;
    RecordWatchdog("kill worker process", &expiry.timer);
    expired_.push_back(std::move(expiry.timer));
  }
}

void JobHost::RecordWatchdog(std::string name, const TimerRequest* timer) {
  if (!events_) return;
  AgentEventRecord event = EventNow("RUNNING");
  event.watchdog = std::move(name);
  if (timer != nullptr) {
    event.watchdog_details = {{"worker_pid", Concat(timer->pid)},
                              {"scope_id", timer->scope},
                              {"signal", Concat(timer->signal)}};
  }
  events_(event, clock_.Wall());
}

// ----------------------------------------------------------------------------------------------
// failures

FailureRecord JobHost::RecordOf(const WorkerFailure& failure) const {
  const Worker& worker = workers_[failure.worker];
  FailureRecord record{.host = options_.host_name(),
                       .rank = place_->ranks.first_rank + static_cast<int64_t>(failure.worker),
                       .local_rank = static_cast<int64_t>(failure.worker),
                       .pid = worker.pid,
                       .code = failure.code,
                       .time_seconds = worker.ended_at / 1'000'000,
                       .order = worker.ended_at,
                       .was_signalled = failure.signalled_at.has_value()};
  const WallTime signalled_at =
      clock_.Wall() + (failure.signalled_at.value_or(failure.at) - clock_.Now());
  if (const std::string path = attempt_.ErrorFile(failure.worker); !path.empty())
    AddErrorFile(path, signalled_at, record);
  const StreamPlan plan = PlanStreams(options_.launch.streams, failure.worker);
  if (plan.err == Destination::kFile || plan.err == Destination::kFileAndConsole) {
    for (const std::string& line : LastLines(attempt_.ErrPath(failure.worker)))
      record.output += Concat(record.output.empty() ? "" : "\n", line);
  }
  for (const TimerRequest& timer : expired_) {
    if (timer.pid != worker.pid || timer.signal != -failure.code || !record.message.empty())
      continue;
    record.message = Concat(DefaultMessage(failure.code, worker.pid), ": its timer '",
                            Printable(timer.scope), "' had expired");
  }
  return record;
}

std::string JobHost::DescribeCause(const std::vector<WorkerFailure>& failures) {
  std::vector<FailureRecord> records;
  for (const WorkerFailure& failure : failures) records.push_back(RecordOf(failure));
  const FailureRecord& cause = records[RootCause(records)];
  return cause.was_signalled ? "" : ToJson(cause);
}

// ----------------------------------------------------------------------------------------------
// events

EventWorker JobHost::AsEvent(size_t worker) const {
  return {.ranks = place_->ranks,
          .local_rank = static_cast<int64_t>(worker),
          .pid = workers_[worker].pid};
}

AgentEventRecord JobHost::EventNow(std::string state) const {
  AgentEventRecord event{.state = std::move(state),
                         .run_id = options_.launch.run_id,
                         .role = options_.launch.role,
                         .hostname = options_.host_name(),
                         .total_run_time_seconds = Milliseconds(clock_.Now() - began_) / 1'000,
                         .rdzv_backend = options_.launch.backend,
                         .entry_point = options_.entry_point,
                         .agent_restarts = restarts_};
  if (place_) {
    event.group_rank = place_->group_rank;
    event.group_world_size = place_->group_world_size;
  }
  return event;
}

void JobHost::Record(std::string state, std::optional<EventWorker> worker,
                     std::optional<Duration> took, std::optional<std::string> error) {
  if (!events_) return;
  AgentEventRecord event = EventNow(std::move(state));
  event.worker = std::move(worker);
  event.raw_error = std::move(error);
  if (took) event.duration_ms = Milliseconds(*took);
  events_(event, clock_.Wall());
}

void JobHost::RecordEnd(const std::string& error) {
  for (size_t i = 0; i < workers_.size() && workers_[i].pid != 0; ++i) {
    const Worker& worker = workers_[i];
    EventWorker event = AsEvent(i);
    const bool failed = worker.code.value_or(0) != 0;
    if (failed) event.failed_with = worker.code;
    Record(failed                               ? "FAILED"
           : failures_.empty() && error.empty() ? "SUCCEEDED"
                                                : "TERMINATED",
           event);
  }
  Record(error.empty() ? "SUCCEEDED" : "FAILED", std::nullopt, std::nullopt,
         error.empty() ? std::nullopt : std::optional(error));
}

}  // namespace muster
