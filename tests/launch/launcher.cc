#include "launch/launcher.h"

#include <signal.h>
#include <time.h>

#include <memory>
#include <thread>
#include <utility>

#include "base/text.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "launch/agent.h"
#include "launch/workers/worker_processes.h"
#include "muster/rendezvous.h"
#include "os/ports/system.h"

namespace muster::test {

namespace {

RendezvousHandlerPtr Meet(const LauncherOptions& options) {
  const RendezvousConfig config{{"is_host", false},
                                {"keep_alive_interval", std::string("0.2")},
                                {"keep_alive_max_attempt", std::string("50")},
                                {"grace", std::string("0.2")},
                                {"last_call_timeout", std::string("1")},
                                {"join_timeout", std::to_string(options.join_seconds)}};
  return GetRendezvousHandler(RendezvousParameters("muster", options.endpoint, "job",
                                                   options.nodes_min, options.nodes_max,
                                                   "127.0.0.1", config));
}

}  // namespace

SignalsHeld::SignalsHeld() {
  pthread_sigmask(SIG_SETMASK, nullptr, &before_);
  cli::BlockSignals(Numbers());
}

SignalsHeld::~SignalsHeld() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : Numbers()) sigaddset(&set, number);
  const timespec at_once{};
  while (sigtimedwait(&set, nullptr, &at_once) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Launcher::Say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  said_ += line + "\n";
}

std::string Launcher::said() const {
  const std::lock_guard lock(mutex_);
  return said_;
}

std::string Launcher::Filtered(int attempt, const char* stream) const {
  return ReadFile(
      Concat(logs_, "/attempt_", attempt, "/filtered_", std::string_view(stream), ".log"));
}

JobOptions Launcher::Job(const RendezvousHandler& handler, cli::WaitLine& wait_line) {
  Environment inherited{{"PATH", "/usr/bin:/bin"}, {"SEEN", folder_.File("")}};
  if (options_.has_watchdog) inherited["TORCHELASTIC_ENABLE_FILE_TIMER"] = "1";
  // In a file, because the launcher replaces dollars on the command line.
  const std::string script = folder_.File(options_.name + ".sh");
  WriteFile(script, options_.script);
  return {.launch = {.run_id = "job",
                     .max_restarts = options_.max_restarts,
                     .command = {.script = "/bin/sh", .arguments = {script}, .no_python = true},
                     .streams = {.redirects = {}, .tee = {.all = {.out = true, .err = true}}},
                     .output_filters = {""},
                     .error_filters = {""}},
          .entry_point = "/bin/sh",
          .inherited = std::move(inherited),
          .workers = options_.workers,
          .uses_agent_store = handler.UseAgentStore(),
          .timer_file = folder_.File(options_.name + ".timers"),
          .log = [this](const std::string& line, bool) { Say(line); },
          .host_name = [] { return std::string("here"); },
          .on_joining = [&] { wait_line.Begin(); },
          .on_joined = [&] { wait_line.End(); }};
}

int Launcher::Run(const std::function<void()>& meanwhile) {
  auto logs = LogTree::Create({.root = folder_.File(options_.name),
                               .run_id = "job",
                               .filtered = {.out = true, .err = true},
                               .seed = 1});
  logs_ = logs.value().directory();
  // Signals to the process wait, for all of its threads (SignalsHeld), until the watch below
  // starts.
  Agent* agent = nullptr;
  auto processes = WorkerProcesses::Open([&agent](size_t worker, int64_t pid, int code) {
                     agent->OnWorkerEnded(worker, pid, code);
                   }).value();
  const RendezvousHandlerPtr handler = Meet(options_);
  cli::WaitLine wait_line(*handler);
  System& around = ThisProcess();
  JobHost host(
      Job(*handler, wait_line), std::move(logs).value(),
      OpenAgentEventSink({.name = "file:" + folder_.File(options_.name + ".events")}).value(),
      around.clock());
  Agent driver({.rules = {.workers = options_.workers,
                          .max_restarts = options_.max_restarts,
                          .grace = options_.grace},
                .rendezvous = {.role = {"default", static_cast<int64_t>(options_.workers)},
                               .contact_max = options_.contact_max}},
               *handler, *processes, host, around);
  agent = &driver;
  int status = 1;
  {
    const cli::SignalWatch signals(SignalsHeld::Numbers(),
                                   [&](int signal) { driver.OnSignal(signal); });
    std::thread second(meanwhile ? meanwhile : [] {});
    status = driver.Run();
    wait_line.End();
    processes.reset();
    second.join();
  }
  host.FinishOutput();
  host.RecordEnd("");
  failures_ = host.failures();
  restarts_ = host.restarts();
  Say(driver.why());
  return status;
}

}  // namespace muster::test
