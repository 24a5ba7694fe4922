// What a user asks of `muster run`: torchrun's command line and its PET_ variables, read as
// torchrun reads them, and checked as far as that can be done without looking at the machine.
//
// Where it differs from torchrun: without --rdzv-backend, the backend is "muster", unless one of
// --node-rank, --master-addr and --master-port says that the nodes are fixed ("static").
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "launch/core/environment.h"
#include "launch/core/launch_words.h"
#include "launch/options/launch_table.h"

namespace muster {

struct LaunchOptions {
  // Nodes and workers.
  NodeCount nodes{};
  std::string workers = "1";  ///< A number above 0, or cpu, gpu, xpu, auto: for those who see them.
  std::string role = "default";
  std::string local_addr{};    ///< Empty: found out.
  std::string numa_binding{};  ///< node, socket, exclusive, core-complex. Empty: none.
  bool virtual_local_rank = false;

  // Where the nodes meet.
  std::string backend = "muster";  ///< Or c10d, static, etcd, etcd-v2.
  std::string endpoint{};          ///< Empty: the backend's own, or inside this process.
  std::string run_id = "none";     ///< Empty: the caller invents one; a UUID if standalone.
  std::map<std::string, std::string> rendezvous{};  ///< The backend's options.
  bool standalone = false;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 29500;

  // Supervision.
  int64_t max_restarts = 0;
  Duration monitor_interval = 100ms;
  Duration shutdown_timeout = 30s;
  Duration exit_barrier_timeout = 300s;
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  ///< ParseSignals() reads it.
  std::string event_sink = "null";                        ///< Or console, dynamic_rendezvous.

  // What is run. At most one of the three.
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  bool insert_local_rank = false;  ///< "--local-rank=N" directly behind the script.
  std::string python{};            ///< The interpreter. Empty: found out.
  std::string script{};
  std::vector<std::string> arguments{};

  // What is told.
  std::string log_dir{};        ///< Empty: none.
  std::string redirects = "0";  ///< ParseStreams() reads these two.
  std::string tee = "0";
  std::vector<int64_t> shown_workers{};  ///< Empty: all.
  std::vector<std::string> output_needles{};
  std::vector<std::string> error_needles{};
  std::string failure_report{};  ///< A file. Empty: none.
  bool quiet = false;
  bool verbose = false;

  std::vector<std::string> warnings{};  ///< For the user, a line each.

  bool operator==(const LaunchOptions&) const = default;
};

/// Why nothing is run. `text` ends without a newline.
struct LaunchRefusal {
  int status = 2;  ///< 2: the call itself cannot be meant; 1: its values cannot; 0: help.
  std::string text;
};

std::variant<LaunchOptions, LaunchRefusal> ReadLaunchOptions(
    std::span<const std::string> arguments, const Environment& environment,
    LaunchPersonality personality = LaunchPersonality::kRun);

struct SignalList {
  std::vector<int> numbers;          ///< Each once, in their order.
  std::vector<std::string> unknown;  ///< To be left out, with a warning.

  bool operator==(const SignalList&) const = default;
};
/// "SIGTERM,SIGUSR1". kInvalid: SIGKILL and SIGSTOP, which nobody can handle.
Result<SignalList> ParseSignals(std::string_view text);

}  // namespace muster
