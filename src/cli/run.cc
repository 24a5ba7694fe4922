// `muster run`: the launcher of one node. Reads the command line as torchrun does, checks
// everything that can be checked, and only then starts anything.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "base/trim.h"
#include "cli/commands.h"
#include "cli/job_report.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "launch/core/substitution.h"
#include "launch/job_host.h"
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
[[noreturn]] void Refuse(const std::string& why) { throw std::runtime_error(why); }

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

/// Messages for the user on stderr, according to --quiet and --verbose.
class Messages {
 public:
  explicit Messages(const LaunchOptions& options)
      : quiet_(options.quiet), verbose_(options.verbose) {}

  void Write(const std::string& line, bool is_detail = false) const {
    if (!quiet_ && (verbose_ || !is_detail)) PrintNotice(line);
  }
  bool quiet() const { return quiet_; }

 private:
  const bool quiet_;
  const bool verbose_;
};

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
  if (stat(program.c_str(), &found) != 0) Refuse(Concat(what, std::strerror(errno)));
  if (S_ISDIR(found.st_mode)) Refuse(Concat(what, std::strerror(EISDIR)));
  if (access(program.c_str(), X_OK) != 0)
    Refuse(Concat(what, std::strerror(errno), "; is it executable (chmod +x)?"));
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
    Refuse(Concat(what, std::strerror(error),
                  is_on_path ? "; --no-python runs the program of that name on the PATH" : ""));
  }
  if (access(script.c_str(), R_OK) != 0) Refuse(Concat(what, std::strerror(errno)));
  if (S_ISDIR(found.st_mode) && access(Concat(script, "/__main__.py").c_str(), R_OK) != 0)
    Refuse(Concat(what, "a folder without __main__.py cannot be run"));
}

struct Program {
  CommandOptions command{};
  std::string entry_point{};
};

Program FindWhatToRun(const LaunchOptions& options, const Environment& environment,
                      const std::string& own_path) {
  Program program{.command = options.command};
  const std::string& option = options.command.python;
  std::string own_python;
  if (!options.command.no_python) {
    program.command.python = Must(FindPython(environment, own_path, OwnPath(), option));
    Environment without = environment;
    without.erase("PYTHON_EXEC");
    if (const auto own = FindPython(without, own_path, OwnPath(), option)) own_python = *own;
  }
  program.entry_point = EntryPointName(program.command, own_python);
  CheckScript(program.command, environment);
  return program;
}

std::vector<int> SignalsToHandle(const LaunchOptions& options) {
  std::vector<int> numbers = options.signal_numbers;
  // With nohup the job must not end with the terminal.
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler == SIG_IGN) std::erase(numbers, SIGHUP);
  return numbers;
}

// ----------------------------------------------------------------------------------------------
// the rendezvous

/// A name that cannot be resolved would otherwise be tried until the join times out.
void CheckEndpoint(const LaunchOptions& options) {
  if (options.endpoint.empty() || options.backend.starts_with("etcd")) return;
  if (options.rendezvous.contains("store_type")) return;  // perhaps a file's path
  const HostAndPort at = ParseRendezvousEndpoint(options.endpoint, 29400);
  const auto known = CanBeResolved(at.host);
  if (known) return;
  // The endpoint of a static rendezvous may have been made from --master-addr.
  const bool by_address = options.backend == "static" && at.host == options.master_addr;
  Refuse(Concat(by_address ? "--master-addr '" : "--rdzv-endpoint '",
                Printable(by_address ? at.host : options.endpoint), "': ", known.error().message));
}

/// Checks early that the report can be written, and removes that of an earlier run.
void PrepareReport(const std::string& path) {
  if (path.empty()) return;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  struct stat found {};
  const bool is_folder = stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  if (is_folder || access(folder.c_str(), W_OK | X_OK) != 0)
    Refuse(Concat("--failure-report '", Printable(path),
                  "': ", std::strerror(is_folder ? EISDIR : errno)));
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

struct Rendezvous {
  std::unique_ptr<StoreServer> server;  ///< For a job of one node; created first, destroyed last.
  RendezvousHandlerPtr handler;
};

Rendezvous Connect(const LaunchOptions& options, const std::string& run_id) {
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
  made.handler = GetRendezvousHandler(RendezvousParameters(
      options.backend, endpoint, run_id, options.nodes.min, options.nodes.max, local_addr, config));
  return made;
}

// ----------------------------------------------------------------------------------------------
// the job

/// Everything that is known before anything is started.
struct Job {
  LaunchOptions options{};
  Environment environment{};
  size_t workers = 1;
  Program program{};
  std::vector<int> signals{};
  std::vector<std::vector<int>> cpus{};
  std::string run_id{};
  bool caller_reports = false;
};

Job Plan(LaunchOptions options, const std::string& own_path, const Messages& messages) {
  Job job{.options = std::move(options), .environment = OwnEnvironment()};
  // Not for the launchers that workers may start.
  job.caller_reports =
      job.environment.erase("MUSTER_CALLER_REPORTS") > 0 && !job.options.failure_report.empty();
  for (const std::string& warning : job.options.warnings) messages.Write(warning);
  job.workers = Must(CountWorkers(job.options.workers, job.environment));
  job.program =
      FindWhatToRun(job.options, job.environment, UnresolvedOwnPath(own_path, job.environment));
  job.signals = SignalsToHandle(job.options);
  if (job.options.numa_binding)
    job.cpus = Must(CpusOfWorkers(*job.options.numa_binding, job.workers, job.environment));
  CheckEndpoint(job.options);
  PrepareReport(job.options.failure_report);
  job.run_id = job.options.run_id;
  if (job.run_id.empty()) {
    job.run_id = job.options.standalone ? Uuid() : DecimalId();
    if (!job.options.standalone) messages.Write(Concat("the id of this run is ", job.run_id), true);
  }
  if (job.environment.contains("TORCHELASTIC_HEALTH_CHECK_PORT"))
    messages.Write("TORCHELASTIC_HEALTH_CHECK_PORT has no effect: there is no health check server");
  if (LimitsThreads(job.environment, job.workers))
    messages.Write(
        "OMP_NUM_THREADS is set to 1 for each worker, so that they do not compete for cores; set "
        "it "
        "yourself to tune them");
  return job;
}

JobOptions OptionsOf(const Job& job, const RendezvousHandler& handler, const Messages& messages,
                     WaitLine& wait_line) {
  const LaunchOptions& options = job.options;
  return {
      .command = job.program.command,
      .entry_point = job.program.entry_point,
      .inherited = job.environment,
      .environment = {.role = options.role,
                      .run_id = job.run_id,
                      .workers = job.workers,
                      .max_restarts = options.max_restarts,
                      .uses_agent_store = handler.UseAgentStore(),
                      .has_virtual_local_rank = options.virtual_local_rank,
                      .signals = options.signals},
      .streams = options.streams,
      .output_filters = options.output_filters,
      .error_filters = options.error_filters,
      .prefix_template = VariableOrEmpty(job.environment, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
      .color = !job.environment.contains("NO_COLOR"),
      .cpus = job.cpus,
      .backend = options.backend,
      .timer_file = Concat(TemporaryFolder(job.environment), "/watchdog_timer_", Uuid()),
      .log = [&messages](const std::string& line,
                         bool is_detail) { messages.Write(line, is_detail); },
      .host_name =
          [name = std::string()]() mutable {
            if (name.empty()) name = FullyQualifiedName();
            return name;
          },
      .on_joining = [&] { messages.quiet() ? void() : wait_line.Begin(); },
      .on_joined = [&] { wait_line.End(); }};
}

AgentEventSink OpenEvents(const Job& job) {
  return Must(OpenAgentEventSink(
      {.name = job.options.event_sink, .log_level = VariableOrEmpty(job.environment, "LOGLEVEL")}));
}

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

LogTree MakeLogs(const Job& job) {
  const LaunchOptions& options = job.options;
  return Must(LogTree::Create(
      {.root = options.log_dir,
       .temporary = TemporaryFolder(job.environment),
       .run_id = job.run_id,
       .filtered = {.out = !options.output_filters.empty(), .err = !options.error_filters.empty()},
       .seed = RandomFromKernel()}));
}

/// Connecting to the rendezvous may take a minute. No worker runs yet: a signal ends the process.
Rendezvous ConnectUnlessSignalled(const Job& job, const LogsSweeper& sweeper,
                                  std::unique_ptr<WorkerProcesses>& processes) {
  const SignalWatch signals(job.signals, [&](int signal) {
    PrintNotice(Concat(SignalName(signal), " came before the rendezvous was reached"));
    FlushStderr();
    sweeper.Sweep();
    // This ends the guardian, too. Otherwise it would only end after this process, and the parent
    // of this process would still find it.
    processes.reset();
    _exit(kFailed);
  });
  return Connect(job.options, job.run_id);
}

int Launch(const Job& job, const Messages& messages) {
  LogTree logs = MakeLogs(job);
  const LogsSweeper sweeper(logs, job.options.log_dir.empty());
  // Workers whose output goes to a full disk fail, and cannot report why.
  const StreamOptions& streams = job.options.streams;
  if (!streams.redirects.IsEmpty() || !streams.tee.IsEmpty()) Must(logs.CheckRoom());
  AgentEventSink events = OpenEvents(job);

  // From here on signals stay pending, in all threads started later, for a SignalWatch.
  BlockSignals(job.signals);
  Agent* agent = nullptr;
  // Workers end only after the agent has started them.
  std::unique_ptr<WorkerProcesses> processes = Must(WorkerProcesses::Open(
      [&agent](size_t worker, int64_t pid, int code) { agent->OnWorkerEnded(worker, pid, code); }));
  const Rendezvous rendezvous = ConnectUnlessSignalled(job, sweeper, processes);
  WaitLine wait_line(*rendezvous.handler);
  System& around = ThisProcess();
  JobHost host(OptionsOf(job, *rendezvous.handler, messages, wait_line), std::move(logs),
               std::move(events), around.clock());
  Agent driver(
      {.rules = {.workers = job.workers,
                 .max_restarts = job.options.max_restarts,
                 .grace = job.options.shutdown_timeout,
                 .barrier_max = job.options.exit_barrier_timeout},
       .rendezvous = {.role = {job.options.role, static_cast<int64_t>(job.workers)},
                      .are_identical =
                          VariableOrEmpty(job.environment, "TORCH_ELASTIC_WORKER_IDENTICAL") == "1",

                      .contact_max = job.options.contact_timeout,
                      .where = PlaceOf(job.options),
                      .advice = AdviceIfLost(job.options),
                      .monitor_interval = job.options.monitor_interval}},
      *rendezvous.handler, *processes, host, around);
  agent = &driver;
  // Once no worker is left, a signal ends the process: it may wait for a console without a reader.
  std::atomic<int> outcome = -1;
  const SignalWatch signals(job.signals, [&](int signal) {
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
  ReportEnd({.status = status,
             .why = driver.why(),
             .signal = driver.machine().signal(),
             .rendezvous_is_lost = driver.rendezvous().state().is_lost,
             .entry_point = job.program.entry_point,
             .run_id = job.run_id,
             .caller_reports = job.caller_reports,
             .failure_report = job.options.failure_report,
             .parent_error_file = VariableOrEmpty(job.environment, "TORCHELASTIC_ERROR_FILE")},
            host, driver.rendezvous().state().failure_elsewhere, around.clock());
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
  const Messages messages(std::get<LaunchOptions>(read));
  try {
    return Launch(Plan(std::get<LaunchOptions>(std::move(read)), own_path, messages), messages);
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
