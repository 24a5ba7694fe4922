#include "launch/options/launch_table.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace muster {

namespace {

using Kind = ArgumentSpec::Kind;

constexpr std::string_view kNodes = "Nodes and workers";
constexpr std::string_view kMeeting = "Where nodes meet";
constexpr std::string_view kProgram = "What is run";
constexpr std::string_view kWatching = "Supervision";
constexpr std::string_view kTelling = "Logs and reports";

constexpr ArgumentSpec kOptions[] = {
    {.name = "nnodes",
     .placeholder = "N|MIN:MAX",
     .initial = "1:1",
     .variable = "PET_NNODES",
     .group = kNodes,
     .help = "Number of nodes, or the least and the most where they may come and go."},
    {.name = "nproc-per-node",
     .placeholder = "N|WORD",
     .initial = "1",
     .variable = "PET_NPROC_PER_NODE",
     .group = kNodes,
     .help = "Workers on this node: a number, gpu or xpu (one for each), cpu (one for each logical "
             "CPU), auto (accelerators if there are any, else CPUs)."},
    {.name = "role",
     .placeholder = "NAME",
     .initial = "default",
     .variable = "PET_ROLE",
     .group = kNodes,
     .help = "What these workers are; workers of one role are also counted by themselves."},
    {.name = "local-addr",
     .placeholder = "ADDR",
     .variable = "PET_LOCAL_ADDR",
     .group = kNodes,
     .help = "Address under which other nodes reach this one. Without it: found out."},
    {.name = "numa-binding",
     .choices = "node,socket,exclusive,core-complex",
     .placeholder = "MODE",
     .group = kNodes,
     .help = "Keep each worker on CPUs near its GPU: node, socket, exclusive (cores divided among "
             "the GPUs of a node) or core-complex (one shared cache)."},
    {.name = "virtual-local-rank",
     .kind = Kind::kFlag,
     .variable = "PET_VIRTUAL_LOCAL_RANK",
     .group = kNodes,
     .help = "Each worker sees one GPU only, and LOCAL_RANK=0."},
    {.name = "standalone",
     .kind = Kind::kFlag,
     .variable = "PET_STANDALONE",
     .group = kMeeting,
     .help = "One node that meets nobody; needs no endpoint, no port and no id."},
    {.name = "rdzv-backend",
     .placeholder = "NAME",
     .variable = "PET_RDZV_BACKEND",
     .group = kMeeting,
     .help = "muster, c10d (as torchrun's, with whom it can be shared), static, etcd or etcd-v2. "
             "Without it: static where --node-rank, --master-addr or --master-port is given, else "
             "muster."},
    {.name = "rdzv-endpoint",
     .placeholder = "HOST:PORT",
     .variable = "PET_RDZV_ENDPOINT",
     .group = kMeeting,
     .help = "Where the rendezvous is, the same on all nodes."},
    {.name = "rdzv-id",
     .placeholder = "ID",
     .initial = "none",
     .variable = "PET_RDZV_ID",
     .group = kMeeting,
     .help = "Name of the job, the same on all nodes; jobs of different names do not meet."},
    {.name = "rdzv-conf",
     .placeholder = "K=V,...",
     .variable = "PET_RDZV_CONF",
     .group = kMeeting,
     .help = "Options of the backend, such as join_timeout=600,last_call_timeout=30."},
    {.name = "node-rank",
     .kind = Kind::kWhole,
     .placeholder = "N",
     .initial = "0",
     .variable = "PET_NODE_RANK",
     .group = kMeeting,
     .help = "Which of the nodes this one is, from 0. Static only."},
    {.name = "master-addr",
     .placeholder = "ADDR",
     .initial = "127.0.0.1",
     .variable = "PET_MASTER_ADDR",
     .group = kMeeting,
     .help = "Where node 0 is, if there is no --rdzv-endpoint. Static only."},
    {.name = "master-port",
     .kind = Kind::kWhole,
     .placeholder = "PORT",
     .initial = "29500",
     .variable = "PET_MASTER_PORT",
     .group = kMeeting,
     .help = "Port on node 0, if there is no --rdzv-endpoint. Static only."},
    {.name = "module",
     .letter = 'm',
     .kind = Kind::kFlag,
     .variable = "PET_MODULE",
     .group = kProgram,
     .help = "The script is a Python module: python -m SCRIPT."},
    {.name = "no-python",
     .kind = Kind::kFlag,
     .variable = "PET_NO_PYTHON",
     .group = kProgram,
     .help = "The script is a program, found on PATH, and run without Python."},
    {.name = "run-path",
     .kind = Kind::kFlag,
     .variable = "PET_RUN_PATH",
     .group = kProgram,
     .help = "Run the script with its exceptions recorded; --module and --no-python do not count."},
    {.name = "start-method",
     .choices = "spawn,fork,forkserver",
     .placeholder = "METHOD",
     .initial = "spawn",
     .variable = "PET_START_METHOD",
     .group = kProgram,
     .help = "spawn, fork or forkserver. Has no effect: workers are always new processes."},
    {.name = "python",
     .placeholder = "PATH",
     .ours = true,
     .group = kProgram,
     .help = "Interpreter of the workers, where PYTHON_EXEC is not set. Without both: the one "
             "beside this program, of the active environment, or on PATH."},
    {.name = "max-restarts",
     .kind = Kind::kWhole,
     .placeholder = "N",
     .initial = "0",
     .variable = "PET_MAX_RESTARTS",
     .group = kWatching,
     .help = "How often this node's workers may fail and be started again."},
    {.name = "monitor-interval",
     .kind = Kind::kFraction,
     .placeholder = "SECONDS",
     .initial = "0.1",
     .variable = "PET_MONITOR_INTERVAL",
     .group = kWatching,
     .help = "Longest time between two looks at the workers and the other nodes."},
    {.name = "shutdown-timeout",
     .kind = Kind::kWhole,
     .placeholder = "SECONDS",
     .initial = "30",
     .variable = "PET_SHUTDOWN_TIMEOUT",
     .group = kWatching,
     .help = "Time for workers to end when told to, before they are killed. Also from "
             "TORCH_ELASTIC_SHUTDOWN_TIMEOUT. In torchrun from 2.12 on."},
    {.name = "exit-barrier-timeout",
     .kind = Kind::kWhole,
     .placeholder = "SECONDS",
     .initial = "300",
     .ours = true,
     .group = kWatching,
     .help = "Time for the other nodes' workers to end when those here are done. Also from "
             "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT."},
    {.name = "signals-to-handle",
     .placeholder = "NAMES",
     .initial = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .variable = "PET_SIGNALS_TO_HANDLE",
     .group = kWatching,
     .help = "Signals that end the workers in order, and then this program."},
    {.name = "log-dir",
     .placeholder = "DIR",
     .variable = "PET_LOG_DIR",
     .group = kTelling,
     .help = "Where worker logs and error files go. Without it: a temporary folder."},
    {.name = "redirects",
     .letter = 'r',
     .placeholder = "STREAMS",
     .initial = "0",
     .variable = "PET_REDIRECTS",
     .group = kTelling,
     .help = "Write streams of workers to files only: 0 none, 1 stdout, 2 stderr, 3 both, or "
             "0:1,1:3 by worker."},
    {.name = "tee",
     .letter = 't',
     .placeholder = "STREAMS",
     .initial = "0",
     .variable = "PET_TEE",
     .group = kTelling,
     .help = "Write them to files and show them, each line with its worker's rank."},
    {.name = "local-ranks-filter",
     .placeholder = "N,...",
     .variable = "PET_LOCAL_RANKS_FILTER",
     .group = kTelling,
     .help = "Show these workers only. Without it: all."},
    {.name = "duplicate-stdout-filters",
     .placeholder = "TEXTS",
     .variable = "PET_DUPLICATE_STDOUT_FILTERS",
     .group = kTelling,
     .help = "Copy lines of teed stdout that contain one of these texts to one file. Commas "
             "divide; two of them are one in a text."},
    {.name = "duplicate-stderr-filters",
     .placeholder = "TEXTS",
     .variable = "PET_DUPLICATE_STDERR_FILTERS",
     .group = kTelling,
     .help = "The same for stderr."},
    {.name = "event-log-handler",
     .placeholder = "SINK",
     .initial = "null",
     .variable = "PET_EVENT_LOG_HANDLER",
     .group = kTelling,
     .help = "What becomes of lifecycle events: null (nothing), console (JSON on stderr), or "
             "file:PATH (JSON with real times, appended)."},
    {.name = "logs-specs",
     .placeholder = "NAME",
     .group = kTelling,
     .help = "A Python plug-in. It cannot be loaded here: use torchrun for that."},
    {.name = "failure-report",
     .placeholder = "FILE",
     .ours = true,
     .group = kTelling,
     .help = "Also write there, as JSON, which worker failed first and how."},
    {.name = "quiet",
     .kind = Kind::kFlag,
     .ours = true,
     .group = kTelling,
     .help = "Tell failures only."},
    {.name = "verbose",
     .kind = Kind::kFlag,
     .ours = true,
     .group = kTelling,
     .help = "Tell what happens, and why."},
    {.name = "help",
     .letter = 'h',
     .kind = Kind::kHelp,
     .group = kTelling,
     .help = "Show this and end."},
};

constexpr ArgumentSpec kUseEnv = {
    .name = "use-env",
    .kind = Kind::kFlag,
    .group = kProgram,
    .help = "Do not put --local-rank=N behind the script: it reads LOCAL_RANK."};

constexpr std::string_view kAbout = R"(
Starts the workers of this node, meets the other nodes, and keeps watch: when workers fail, or nodes
come or go, the workers of all nodes start again. Takes torchrun's command line and PET_ variables.

  muster run --standalone --nproc-per-node=gpu train.py --epochs 3
      One machine, a worker for each GPU.
  muster run --nnodes=2:4 --max-restarts=3 --rdzv-id=job7 --rdzv-endpoint=host0:29400 train.py
      Two to four nodes that come and go. The same line on each; host0 serves the rendezvous.
  muster run --nnodes=2 --node-rank=1 --master-addr=host0 --nproc-per-node=8 -m package.train
      The second of two fixed nodes.
  muster run --nnodes=2:4 --rdzv-id=job7 --rdzv-backend=etcd --rdzv-endpoint=etcd://h1,h2 train.py
      The same line on each node; they meet in etcd, and no machine of the job is special.

Options stand before the script; what stands behind it is the script's. Dashes in names may be
underscores, and names may be cut short where that is clear. A value on the command line goes before
the one in the variable shown with the option, and that before the default. Variables of options
without a value are 1 (on) or 0 (off).

)";

constexpr std::string_view kStatuses = R"(
Exit status: 0 all workers of this node succeeded; 1 workers failed, nodes did not meet, a signal
ended it, or a value cannot be used; 2 the command line cannot be meant.)";

}  // namespace

std::vector<ArgumentSpec> LaunchTable(LaunchPersonality personality) {
  std::vector<ArgumentSpec> options(std::begin(kOptions), std::end(kOptions));
  if (personality == LaunchPersonality::kLegacy) {
    const auto last = std::find_if(options.rbegin(), options.rend(),
                                   [](const ArgumentSpec& it) { return it.group == kProgram; });
    options.insert(last.base(), kUseEnv);
  }
  return options;
}

std::string LaunchHelp(LaunchPersonality personality) {
  return Concat(kLaunchUsage, '\n', kAbout, HelpOn(LaunchTable(personality), 100), kStatuses);
}

}  // namespace muster
