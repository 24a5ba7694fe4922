// The options of `muster run`: torchrun's command line and its PET_ variables, read as torchrun
// reads them, and checked as far as that can be done without looking at the machine.
//
// Where it differs from torchrun: without --rdzv-backend, the backend is "muster", unless one of
// --node-rank, --master-addr and --master-port says that the nodes are fixed ("static").
#pragma once

#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "launch/core/cpu_sets.h"
#include "launch/core/environment.h"
#include "launch/core/stream_plan.h"
#include "launch/core/worker_command.h"
#include "launch/options/arguments.h"

namespace muster {

/// torchrun, or the older torch.distributed.launch: that one knows --use-env, and without it puts
/// each worker's local rank into its command line.
enum class LaunchPersonality { kRun, kLegacy };

inline constexpr std::string_view kLaunchUsage =
    "usage: muster run [options] script [arguments of the script]";

/// The options: their names, kinds, defaults and variables.
std::vector<ArgumentSpec> LaunchTable(LaunchPersonality personality);

/// At most 100 columns wide; ends without a newline.
std::string LaunchHelp(LaunchPersonality personality = LaunchPersonality::kRun);

/// The lines that make bash, zsh, tcsh or fish complete the options of `muster` and `torchrun`.
std::string LaunchCompletion(std::string_view shell);

// Values of the command line, read as torchrun reads them.

struct NodeCount {
  int64_t min = 1;
  int64_t max = 1;

  bool operator==(const NodeCount&) const = default;
};
/// "4", or "2:8" for an elastic job.
Result<NodeCount> ParseNodeCount(std::string_view text);

/// "3": of every worker; "0:1,1:3": of these workers, and none of the others.
Result<StreamChoice> ParseStreams(std::string_view text);

/// "0,2".
Result<std::vector<int64_t>> ParseWorkerList(std::string_view text);

/// "a,b": two texts; "a,,b" is the one text "a,b".
std::vector<std::string> ParseFilters(std::string_view text);

struct SignalList {
  std::vector<int> numbers;          ///< Each once, in their order.
  std::vector<std::string> unknown;  ///< To be ignored, with a warning.

  bool operator==(const SignalList&) const = default;
};
/// "SIGTERM,SIGUSR1". kInvalid: SIGKILL and SIGSTOP, which no program can handle.
Result<SignalList> ParseSignals(std::string_view text);

// The options that each backend of a rendezvous knows. Backends ignore unknown options, so a
// misspelt one would go unnoticed without a warning. Any thread.

/// A warning about a `key` that `backend` does not know, with the most similar one that it knows.
/// Nothing if it knows it, or if the backend is not built in.
std::optional<std::string> WarningOfKey(std::string_view backend, std::string_view key);

/// Whether an endpoint of etcd has "user:password@" before its hosts.
bool ShowsPassword(std::string_view endpoint);

/// Why a command line that shows one is refused, and what to write instead.
inline constexpr std::string_view kVisiblePassword =
    "a password on a command line can be read by everybody on the machine; write "
    "password_file=FILE among the options, or set MUSTER_ETCD_PASSWORD";

struct LaunchOptions {
  // Nodes and workers.
  NodeCount nodes{};
  std::string workers = "1";  ///< A number above 0, or cpu, gpu, xpu, auto: see CountWorkers().
  std::string role = "default";
  std::string local_addr{};  ///< Empty: determined by the backend.
  std::optional<NumaMode> numa_binding{};
  bool virtual_local_rank = false;

  // Where the nodes meet.
  std::string backend = "muster";  ///< Or c10d, static, etcd, etcd-v2.
  std::string endpoint{};          ///< Empty: the backend's own, or inside this process.
  std::string run_id = "none";     ///< Empty: the caller makes one; a UUID if standalone.
  std::map<std::string, std::string> rendezvous{};  ///< The backend's options.
  bool standalone = false;
  std::string master_addr = "127.0.0.1";

  // Supervision.
  int64_t max_restarts = 0;
  Duration monitor_interval = 100ms;
  Duration shutdown_timeout = 30s;
  Duration exit_barrier_timeout = 300s;
  bool wait_for_children = false;
  Duration uninterruptible_max{};  ///< Of a worker's sleep; 0: no limit.
  /// From --rdzv-conf; 30 s on other backends than muster.
  Duration contact_timeout = 10s;
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  ///< As given, for the workers.
  std::vector<int> signal_numbers{SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  std::string event_sink = "null";  ///< Or console, dynamic_rendezvous, file:PATH.

  // The program. Its `python` is empty where the interpreter is to be found.
  CommandOptions command{};

  // Logs and reports.
  std::string log_dir{};  ///< Empty: none.
  StreamOptions streams{};
  std::string prefix_template{};  ///< Empty: the usual one, see LinePrefix().
  std::vector<std::string> output_filters{};
  std::vector<std::string> error_filters{};
  std::string failure_report{};  ///< A file. Empty: none.
  bool quiet = false;
  bool verbose = false;

  std::vector<std::string> warnings{};  ///< For the user, a line each.

  bool operator==(const LaunchOptions&) const = default;
};

/// Why nothing is run. `text` ends without a newline.
struct LaunchRefusal {
  int status = 2;  ///< 2: a usage error; 1: a value that cannot be used; 0: help.
  std::string text;
};

std::variant<LaunchOptions, LaunchRefusal> ReadLaunchOptions(
    std::span<const std::string> arguments, const Environment& environment,
    LaunchPersonality personality = LaunchPersonality::kRun);

}  // namespace muster
