// `muster run`: the launcher of one node. Reads the command line as torchrun does, checks
// everything that can be checked, and only then starts anything.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "launch/core/environment.h"
#include "launch/job_host.h"
#include "launch/logs/error_file.h"
#include "launch/logs/failure_json.h"
#include "launch/options/launch_options.h"
#include "launch/workers/devices.h"
#include "launch/workers/interpreter.h"
#include "launch/workers/numa.h"
#include "launch/workers/worker_processes.h"
#include "muster/network.h"
#include "muster/rendezvous.h"
#include "muster/store_server.h"
#include "os/ports/system.h"
#include "os/posix/entropy.h"
#include "os/posix/file_io.h"
#include "os/posix/host.h"
#include "os/posix/memory.h"
#include "os/posix/worker_launch.h"

namespace muster::cli {
namespace {

/// One line for the user.
template <typename... Pieces>
[[noreturn]] void Refuse(const Pieces&... why) {
  throw std::runtime_error(Concat(why...));
}

template <typename T>
T Must(Result<T> result) {
  if (!result) Refuse(result.error().message);
  return std::move(result).value();
}

Environment OwnEnvironment() {
  Environment all;
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string_view text(*line);
    const size_t equals = text.find('=');
    if (equals == text.npos) continue;
    all.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

/// Absolute: workers may change their directory.
std::string TemporaryFolder(const Environment& environment) {
  const std::string folder = VariableOrEmpty(environment, "TMPDIR");
  return folder.empty() ? "/tmp" : std::filesystem::absolute(folder).string();
}

std::string DecimalId() {
  std::random_device entropy;
  std::string text(1, static_cast<char>('1' + entropy() % 9));
  while (text.size() < 38) text += static_cast<char>('0' + entropy() % 10);
  return text;
}

/// A random UUID (version 4), which the kernel makes.
std::string Uuid() {
  const auto uuid = ReadUpTo("/proc/sys/kernel/random/uuid");
  return uuid ? std::string(Trim(*uuid)) : DecimalId();
}

/// A message for the user on stderr, according to --quiet and --verbose.
void Write(const LaunchOptions& options, const std::string& line, bool is_detail = false) {
  if (!options.quiet && (options.verbose || !is_detail)) PrintNotice(line);
}

// ----------------------------------------------------------------------------------------------
// the program

// Checked before anything is started: the workers would not find it either.

/// A path, or a name to be found on PATH.
void CheckProgram(const char* kind, const std::string& program, const Environment& environment) {
  if (program.find('/') == program.npos) {
    Must(WorkerLaunch::Prepare({.arguments = {program}, .environment = ToLines(environment)},
                               "check"));
    return;
  }
  const std::string what = Concat(std::string_view(kind), " '", Printable(program), "': ");
  struct stat found {};
  if (stat(program.c_str(), &found) != 0) Refuse(what, std::strerror(errno));
  if (S_ISDIR(found.st_mode)) Refuse(what, std::strerror(EISDIR));
  if (access(program.c_str(), X_OK) != 0)
    Refuse(what, std::strerror(errno), "; is it executable (chmod +x)?");
}

void CheckScript(const CommandOptions& command, const Environment& environment) {
  const std::string script = Substituted(command.script, {{"local_rank", "0"}});
  if (command.no_python) return CheckProgram("program", script, environment);
  CheckProgram("interpreter", command.python, environment);
  // Another program than Python may interpret the script in its own way.
  if (command.module || environment.contains("PYTHON_EXEC")) return;
  const std::string what = Concat("script '", Printable(script), "': ");
  struct stat found {};
  if (stat(script.c_str(), &found) != 0) {
    const int error = errno;
    const bool is_on_path =
        script.find('/') == script.npos &&
        WorkerLaunch::Prepare({.arguments = {script}, .environment = ToLines(environment)},
                              "check");
    Refuse(what, std::strerror(error),
           is_on_path ? "; --no-python runs the program of that name on the PATH" : "");
  }
  if (access(script.c_str(), R_OK) != 0) Refuse(what, std::strerror(errno));
  if (S_ISDIR(found.st_mode) && access(Concat(script, "/__main__.py").c_str(), R_OK) != 0)
    Refuse(what, "a folder without __main__.py cannot be run");
}

void FindWhatToRun(const std::string& own_path, JobOptions& job) {
  CommandOptions& command = job.launch.command;
  std::string own_python;
  const std::string option = std::exchange(command.python, "");
  if (!command.no_python) {
    command.python = Must(FindPython(job.inherited, own_path, OwnPath(), option));
    Environment without = job.inherited;
    without.erase("PYTHON_EXEC");
    if (const auto own = FindPython(without, own_path, OwnPath(), option)) own_python = *own;
  }
  job.entry_point = EntryPointName(command, own_python);
  CheckScript(command, job.inherited);
}

/// With nohup the job must not end with the terminal.
bool IsHangupIgnored() {
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  return hangup.sa_handler == SIG_IGN;
}

// ----------------------------------------------------------------------------------------------
// the rendezvous

/// A name that cannot be resolved would otherwise be tried until the join times out.
void CheckEndpoint(const LaunchOptions& options) {
  if (options.endpoint.empty() || options.backend.starts_with("etcd")) return;
  if (options.rendezvous.contains("store_type")) return;  // perhaps a file's path
  const HostAndPort at = ParseRendezvousEndpoint(options.endpoint, 29400);
  const Status known = CanBeResolved(at.host);
  if (known) return;
  // The endpoint of a static rendezvous may have been made from --master-addr.
  const bool by_address = options.backend == "static" && at.host == options.master_addr;
  Refuse(by_address ? "--master-addr '" : "--rdzv-endpoint '",
         Printable(by_address ? at.host : options.endpoint), "': ", known.error().message);
}

/// Checks early that the report can be written, and removes that of an earlier run.
void PrepareReport(const std::string& path) {
  if (path.empty()) return;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  struct stat found {};
  const bool is_folder = stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  if (is_folder || access(folder.c_str(), W_OK | X_OK) != 0)
    Refuse("--failure-report '", Printable(path), "': ", std::strerror(is_folder ? EISDIR : errno));
  if (stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode)) unlink(path.c_str());
}

/// An endpoint in etcd may contain a password.
std::string PlaceOf(const LaunchOptions& options) {
  const bool is_one = options.backend == "muster" && !options.endpoint.empty();
  return is_one ? Concat("the rendezvous at ", Printable(options.endpoint)) : "the rendezvous";
}

std::string AdviceIfLost(const LaunchOptions& options) {
  if (options.backend != "muster") return "";
  return "; restart it there, or use --rdzv-backend etcd, which survives the loss of a machine";
}

// ----------------------------------------------------------------------------------------------
// the job

/// Everything that is known before anything is started.
JobOptions Plan(LaunchOptions given, const std::string& own_path) {
  JobOptions job{.launch = std::move(given), .inherited = OwnEnvironment()};
  LaunchOptions& options = job.launch;
  // Not for the launchers that workers may start.
  job.caller_reports =
      job.inherited.erase("MUSTER_CALLER_REPORTS") > 0 && !options.failure_report.empty();
  for (const std::string& warning : options.warnings) Write(options, warning);
  job.workers = Must(CountWorkers(options.workers, job.inherited));
  FindWhatToRun(UnresolvedOwnPath(own_path, job.inherited), job);
  if (const std::string& python = options.command.python; !python.empty())
    Write(options, Concat("the interpreter of the workers is ", python), true);
  if (IsHangupIgnored()) std::erase(options.signal_numbers, SIGHUP);
  if (options.numa_binding)
    job.cpus = Must(CpusOfWorkers(*options.numa_binding, job.workers, job.inherited));
  CheckEndpoint(options);
  PrepareReport(options.failure_report);
  if (options.run_id.empty()) {
    options.run_id = options.standalone ? Uuid() : DecimalId();
    if (!options.standalone) Write(options, Concat("the id of this run is ", options.run_id), true);
  }
  if (job.inherited.contains("TORCHELASTIC_HEALTH_CHECK_PORT"))
    Write(options, "TORCHELASTIC_HEALTH_CHECK_PORT has no effect: there is no health check server");
  if (LimitsThreads(job.inherited, job.workers))
    Write(options,
          "OMP_NUM_THREADS is set to 1 for each worker, so that they do not compete for cores; set "
          "it yourself to tune them");
  return job;
}

// ----------------------------------------------------------------------------------------------
// the report of its end: for the user on stderr, for programs in files

void WarnUnless(const Status& written) {
  if (!written) ReportStderr(Concat("muster: ", OneLine(written.error().message), "\n"));
}

/// The failures that this node knows of, and which of them is the cause.
struct Failures {
  std::vector<FailureRecord> records;
  size_t root = 0;
  bool is_elsewhere = false;  ///< The first record is another node's.
  /// A worker failed by itself; those that were signalled are no cause.
  bool has_cause = false;
};

Failures Gather(const std::vector<FailureRecord>& here, const std::string& elsewhere) {
  Failures all{.records = here};
  if (!here.empty()) all.root = RootCause(here);
  if (!elsewhere.empty()) {
    const auto other = FailureFromJson(elsewhere);
    WarnUnless(other ? Ok() : Status(other.error()));
    all.is_elsewhere =
        other && std::ranges::find(here, other->rank, &FailureRecord::rank) == here.end();
    if (all.is_elsewhere) {
      const bool is_later = !here.empty() && WroteBefore(here[all.root], *other);
      all.records.insert(all.records.begin(), *other);
      all.root = is_later ? all.root + 1 : 0;
    }
  }
  all.has_cause = !all.records.empty() && !all.records[all.root].was_signalled;
  return all;
}

/// For the parent of this process: the worker's error file, or one about a failure of the launcher.
Status WriteParentErrorFile(const Agent& agent, const std::string& path, const Failures& failures,
                            Clock& clock) {
  if (path.empty()) return Ok();
  if (const int signal = agent.machine().signal(); signal != 0) {
    const std::string why = Concat("stopped by ", SignalName(signal));
    return WriteWhole(path, OwnErrorFile("SignalException", why, clock.Wall()));
  }
  if (!failures.has_cause)
    return WriteWhole(path, OwnErrorFile("LauncherError", agent.why(), clock.Wall()));
  if (failures.is_elsewhere && failures.root == 0) return Ok();
  const FailureRecord& root = failures.records[failures.root];
  return CopyErrorFile(root.error_file, root.code, path);
}

Status WriteReport(int status, const Agent& agent, const JobHost& host, Failures failures,
                   const std::string& path, Clock& clock) {
  if (path.empty()) return Ok();
  if (!failures.has_cause) {
    failures.records.insert(failures.records.begin(),
                            {.host = host.host_name(),
                             .code = status,
                             .time_seconds = static_cast<int64_t>(clock.Wall()) / 1'000'000,
                             .message = agent.why()});
    failures.root = 0;
  }
  const FailedJob job{.entry_point = host.options().entry_point,
                      .interpreter = host.options().launch.command.python,
                      .node = host.host_name(),
                      .run_id = host.options().launch.run_id,
                      .round = host.place() ? host.place()->round : 0,
                      .restarts = host.restarts()};
  return WriteWhole(path, FailureReportJson(job, failures.records, failures.root));
}

/// `status` is what agent.Run() has returned; `failure_report` a file for the report as JSON,
/// empty: none.
void ReportEnd(int status, const Agent& agent, JobHost& host, const std::string& failure_report,
               Clock& clock) {
  const RendezvousThread::State rendezvous = agent.rendezvous().state();
  Failures failures = Gather(host.failures(), rendezvous.failure_elsewhere);
  if (rendezvous.is_lost) failures.has_cause = false;  // workers that failed then are no cause
  const int signal = agent.machine().signal();
  const bool workers_failed = failures.has_cause && signal == 0;
  host.RecordEnd(status == kOk || workers_failed ? "" : agent.why());
  if (status == kOk) return;
  if (host.options().caller_reports) {
    // It reads the report.
  } else if (workers_failed) {
    const std::string& python = host.options().launch.command.python;
    ReportStderr(Concat(
        "\n",
        FailureReport(host.options().entry_point, failures.records, failures.root, LocalTimeText),
        python.empty() ? "" : Concat("interpreter: ", OneLine(python), "\n")));
  } else if (signal != 0) {
    // Not ReportStderr(): a launcher that has received a signal does not wait for a reader.
    PrintNotice(Concat(SignalName(signal), " came, and has ended the job on this node"));
  } else {
    ReportStderr(Concat("muster: ", OneLine(agent.why()), "\n"));
  }
  const std::string parent = VariableOrEmpty(host.options().inherited, "TORCHELASTIC_ERROR_FILE");
  WarnUnless(WriteParentErrorFile(agent, parent, failures, clock));
  WarnUnless(WriteReport(status, agent, host, failures, failure_report, clock));
}

// ----------------------------------------------------------------------------------------------
// its course

/// Removes log directories that are empty because no worker was started.
class LogsSweeper {
 public:
  LogsSweeper(const LogTree& logs, bool is_temporary)
      : directory_(logs.directory()), is_temporary_(is_temporary) {}
  ~LogsSweeper() { Sweep(); }
  LogsSweeper(const LogsSweeper&) = delete;

  void Sweep() const {
    // rmdir() does nothing to a directory with content. A root that the user named stays.
    if (directory_.empty() || rmdir(directory_.c_str()) != 0 || !is_temporary_) return;
    rmdir(directory_.substr(0, directory_.rfind('/')).c_str());
  }

 private:
  const std::string directory_;
  const bool is_temporary_;
};

LogTree MakeLogs(const JobOptions& job) {
  const LaunchOptions& options = job.launch;
  return Must(LogTree::Create(
      {.root = options.log_dir,
       .temporary = TemporaryFolder(job.inherited),
       .run_id = options.run_id,
       .filtered = {.out = !options.output_filters.empty(), .err = !options.error_filters.empty()},
       .seed = RandomFromKernel()}));
}

struct Rendezvous {
  std::unique_ptr<StoreServer> server;  ///< For a job of one node; created first, destroyed last.
  RendezvousHandlerPtr handler;
};

/// This may take a minute. No worker runs yet: a signal ends the process.
Rendezvous Connect(const LaunchOptions& options, const LogsSweeper& sweeper,
                   std::unique_ptr<WorkerProcesses>& processes) {
  const SignalWatch signals(options.signal_numbers, [&](int signal) {
    PrintNotice(Concat(SignalName(signal), " came before the rendezvous was reached"));
    FlushStderr();
    sweeper.Sweep();
    // This ends the guardian, too. Otherwise it would only end after this process, and the parent
    // of this process would still find it.
    processes.reset();
    _exit(kFailed);
  });
  Rendezvous made;
  std::string endpoint = options.endpoint;
  RendezvousConfig config;
  for (const auto& [key, value] : options.rendezvous) config.emplace(key, value);
  const bool alone = options.backend == "muster" && endpoint.empty() && options.nodes.max == 1;
  if (alone) {
    made.server =
        std::make_unique<StoreServer>(StoreServerOptions{.host = "127.0.0.1", .threads = 1});
    endpoint = Concat("127.0.0.1:", made.server->port());
    config.insert_or_assign("is_host", false);
  }
  const std::string local_addr =
      alone && options.local_addr.empty() ? "127.0.0.1" : options.local_addr;
  made.handler = GetRendezvousHandler(RendezvousParameters(options.backend, endpoint,
                                                           options.run_id, options.nodes.min,
                                                           options.nodes.max, local_addr, config));
  return made;
}

int Launch(JobOptions job) {
  const LaunchOptions& options = job.launch;
  LogTree logs = MakeLogs(job);
  const LogsSweeper sweeper(logs, options.log_dir.empty());
  // Workers whose output goes to a full disk fail, and cannot report why.
  const StreamOptions& streams = options.streams;
  if (streams.redirects != StreamChoice{} || streams.tee != StreamChoice{}) Must(logs.CheckRoom());
  AgentEventSink events = Must(OpenAgentEventSink(
      {.name = options.event_sink, .log_level = VariableOrEmpty(job.inherited, "LOGLEVEL")}));

  // From here on signals stay pending, in all threads started later, for a SignalWatch.
  BlockSignals(options.signal_numbers);
  Agent* agent = nullptr;
  // Workers end only after the agent has started them.
  std::unique_ptr<WorkerProcesses> processes = Must(WorkerProcesses::Open(
      [&agent](size_t worker, int64_t pid, int code) { agent->OnWorkerEnded(worker, pid, code); },
      {.on_stuck = [&agent](size_t worker, int64_t pid) { agent->OnWorkerStuck(worker, pid); },
       .stuck_after = options.uninterruptible_max}));
  const Rendezvous rendezvous = Connect(options, sweeper, processes);
  WaitLine wait_line(*rendezvous.handler);
  System& around = ThisProcess();
  job.uses_agent_store = rendezvous.handler->UseAgentStore();
  job.timer_file = Concat(TemporaryFolder(job.inherited), "/watchdog_timer_", Uuid());
  job.log = [&](const std::string& line, bool is_detail) { Write(options, line, is_detail); };
  job.host_name = [name = std::string()]() mutable {
    if (name.empty()) name = FullyQualifiedName();
    return name;
  };
  job.on_joining = [&] { options.quiet ? void() : wait_line.Begin(); };
  job.on_joined = [&] { wait_line.End(); };
  JobHost host(job, std::move(logs), std::move(events), around.clock());
  Agent driver(
      {.rules = {.workers = job.workers,
                 .max_restarts = options.max_restarts,
                 .grace = options.shutdown_timeout,
                 .barrier_max = options.exit_barrier_timeout},
       .rendezvous = {.role = {options.role, static_cast<int64_t>(job.workers),
                               std::filesystem::path(options.command.script).filename()},
                      .are_identical =
                          VariableOrEmpty(job.inherited, "TORCH_ELASTIC_WORKER_IDENTICAL") == "1",
                      .contact_max = options.contact_timeout,
                      .where = PlaceOf(options),
                      .advice = AdviceIfLost(options),
                      .monitor_interval = options.monitor_interval},
       .waits_for_children = options.wait_for_children},
      *rendezvous.handler, *processes, host, around);
  agent = &driver;
  // Once no worker is left, a signal ends the process: it may wait for a console without a reader.
  std::atomic<int> outcome = -1;
  const SignalWatch signals(options.signal_numbers, [&](int signal) {
    if (const int status = outcome; status >= 0) _exit(status);
    driver.OnSignal(signal);
  });
  const int status = driver.Run();
  wait_line.End();
  processes.reset();
  outcome = status;
  host.FinishOutput();
  if (const Status room = host.CheckRoom(); status != kOk && !room)
    ReportStderr(Concat("muster: ", room.error().message, "\n"));
  ReportEnd(status, driver, host, options.failure_report, around.clock());
  std::fflush(nullptr);
  // A join in progress cannot be cancelled, nor a last request to a server that has ended.
  if (!driver.rendezvous().state().is_idle) {
    sweeper.Sweep();
    _exit(status);
  }
  return status;
}

}  // namespace

int RunJob(const std::vector<std::string>& arguments, const std::string& own_path,
           LaunchPersonality personality) {
  // A closed pipe must not end the job. Workers get the default action.
  signal(SIGPIPE, SIG_IGN);
  GiveMemoryBack();  // rank 0 serves all
  auto read = ReadLaunchOptions(arguments, OwnEnvironment(), personality);
  if (const auto* refusal = std::get_if<LaunchRefusal>(&read)) {
    if (refusal->status == kOk) {
      std::puts(refusal->text.c_str());
    } else {
      ReportStderr(Concat(refusal->status == kUsage ? "" : "muster: ", refusal->text, "\n"));
    }
    return refusal->status;
  }
  try {
    return Launch(Plan(std::get<LaunchOptions>(std::move(read)), own_path));
  } catch (const std::exception& error) {
    ReportStderr(Concat("muster: ", error.what(), "\n"));
    return kFailed;
  }
}

void AddRun(CLI::App& app) {
  // Only for --help: CLI11 cannot read torchrun's command line, see Main().
  app.add_subcommand("run",
                     "Start and supervise the workers of one node of a training job, as torchrun "
                     "does.");
  app.add_subcommand("launch", "The same, with the options of torch.distributed.launch.");
}

}  // namespace muster::cli
