#include "launch/options/launch_table.h"

#include <iterator>

#include "base/text.h"

namespace muster {

namespace {

using Kind = ArgumentSpec::Kind;

constexpr std::string_view kUseEnv = "use-env";  // of the older launcher only

/// The help has them in this order.
constexpr ArgumentSpec kOptions[] = {
    {.name = "nnodes",
     .placeholder = "N|MIN:MAX",
     .initial = "1:1",
     .group = "Nodes and workers",
     .help = "Number of nodes, or the minimum and maximum of an elastic job."},
    {.name = "nproc-per-node",
     .placeholder = "N|WORD",
     .initial = "1",
     .help = "Workers on this node: a number, gpu or xpu (one for each), cpu (one for each logical "
             "CPU), auto (accelerators if there are any, else CPUs)."},
    {.name = "role",
     .placeholder = "NAME",
     .initial = "default",
     .help = "Role of these workers. Workers of one role also have ranks within it."},
    {.name = "local-addr",
     .placeholder = "ADDR",
     .help = "Address at which other nodes reach this one. Without it: determined automatically."},
    {.name = "numa-binding",
     .choices = "node,socket,exclusive,core-complex",
     .placeholder = "MODE",
     .has_variable = false,
     .help = "Keep each worker on CPUs near its GPU: node, socket, exclusive (cores divided among "
             "the GPUs of a node) or core-complex (one shared cache)."},
    {.name = "virtual-local-rank",
     .kind = Kind::kFlag,
     .help = "Each worker sees one GPU only, and LOCAL_RANK=0."},
    {.name = "standalone",
     .kind = Kind::kFlag,
     .group = "Rendezvous",
     .help = "A job of one node; needs no endpoint, no port and no id."},
    {.name = "rdzv-backend",
     .placeholder = "NAME",
     .help = "muster, c10d (that of torchrun, whose agents can join), static, etcd or etcd-v2. "
             "Without it: static where --node-rank, --master-addr or --master-port is given, else "
             "muster."},
    {.name = "rdzv-endpoint",
     .placeholder = "HOST:PORT",
     .help = "Address of the rendezvous, the same on all nodes."},
    {.name = "rdzv-id",
     .placeholder = "ID",
     .initial = "none",
     .help = "Id of the job, the same on all nodes. Jobs with different ids are separate."},
    {.name = "rdzv-conf",
     .placeholder = "K=V,...",
     .help = "Options of the backend, such as join_timeout=600,last_call_timeout=30."},
    {.name = "node-rank",
     .kind = Kind::kWhole,
     .placeholder = "N",
     .initial = "0",
     .help = "Rank of this node, from 0. Static only."},
    {.name = "master-addr",
     .placeholder = "ADDR",
     .initial = "127.0.0.1",
     .help = "Address of node 0, if there is no --rdzv-endpoint. Static only."},
    {.name = "master-port",
     .kind = Kind::kWhole,
     .placeholder = "PORT",
     .initial = "29500",
     .help = "Port on node 0, if there is no --rdzv-endpoint. Static only."},
    {.name = "module",
     .letter = 'm',
     .kind = Kind::kFlag,
     .group = "Program",
     .help = "The script is a Python module: python -m SCRIPT."},
    {.name = "no-python",
     .kind = Kind::kFlag,
     .help = "The script is a program, found on PATH, and run without Python."},
    {.name = "run-path",
     .kind = Kind::kFlag,
     .help = "Run the script with its exceptions recorded; overrides --module and --no-python."},
    {.name = "start-method",
     .choices = "spawn,fork,forkserver",
     .placeholder = "METHOD",
     .initial = "spawn",
     .help = "spawn, fork or forkserver. Has no effect: workers are always new processes."},
    {.name = "python",
     .placeholder = "PATH",
     .ours = true,
     .help = "Interpreter of the workers, where PYTHON_EXEC is not set. Without both: the one "
             "next to this program, of the active environment, or on PATH."},
    {.name = kUseEnv,
     .kind = Kind::kFlag,
     .has_variable = false,
     .help = "Do not pass --local-rank=N to the script: it reads LOCAL_RANK."},
    {.name = "max-restarts",
     .kind = Kind::kWhole,
     .placeholder = "N",
     .initial = "0",
     .group = "Supervision",
     .help = "How often the workers of this node may fail and be restarted."},
    {.name = "monitor-interval",
     .kind = Kind::kFraction,
     .placeholder = "SECONDS",
     .initial = "0.1",
     .help = "Time between two queries for changes of membership; only c10d is queried. "
             "The ends of workers, and all other backends, are reported by events."},
    {.name = "shutdown-timeout",
     .kind = Kind::kWhole,
     .placeholder = "SECONDS",
     .initial = "30",
     .older_variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
     .help = "Time for workers to end after the signal, before they are killed. Also from "
             "TORCH_ELASTIC_SHUTDOWN_TIMEOUT. In torchrun from 2.12 on."},
    {.name = "exit-barrier-timeout",
     .kind = Kind::kWhole,
     .placeholder = "SECONDS",
     .initial = "300",
     .older_variable = "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT",
     .ours = true,
     .help = "Time for the workers of other nodes to end after those of this node. Also from "
             "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT."},
    {.name = "signals-to-handle",
     .placeholder = "NAMES",
     .initial = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .help = "Signals that are forwarded to the workers and end this program after them."},
    {.name = "log-dir",
     .placeholder = "DIR",
     .group = "Logs and reports",
     .help = "Folder of worker logs and error files. Without it: a temporary folder."},
    {.name = "redirects",
     .letter = 'r',
     .placeholder = "STREAMS",
     .initial = "0",
     .help = "Write streams of workers to files only: 0 none, 1 stdout, 2 stderr, 3 both, or "
             "0:1,1:3 by worker."},
    {.name = "tee",
     .letter = 't',
     .placeholder = "STREAMS",
     .initial = "0",
     .help = "Write them to files and show them, each line with its worker's rank."},
    {.name = "local-ranks-filter",
     .placeholder = "N,...",
     .help = "Show these workers only. Without it: all."},
    {.name = "duplicate-stdout-filters",
     .placeholder = "TEXTS",
     .help = "Copy lines of teed stdout that contain one of these texts to one file. Commas "
             "divide; two of them are one in a text."},
    {.name = "duplicate-stderr-filters", .placeholder = "TEXTS", .help = "The same for stderr."},
    {.name = "event-log-handler",
     .placeholder = "SINK",
     .initial = "null",
     .help = "Destination of lifecycle events: null (none), console (JSON on stderr), or "
             "file:PATH (JSON with real times, appended)."},
    {.name = "logs-specs",
     .placeholder = "NAME",
     .has_variable = false,
     .help = "A Python plug-in. It cannot be loaded here: use torchrun for that."},
    {.name = "failure-report",
     .placeholder = "FILE",
     .ours = true,
     .help = "Also write to this file, as JSON, which worker failed first and how."},
    {.name = "quiet", .kind = Kind::kFlag, .ours = true, .help = "Print failures only."},
    {.name = "verbose", .kind = Kind::kFlag, .ours = true, .help = "Print what happens, and why."},
    {.name = "help", .letter = 'h', .kind = Kind::kHelp, .help = "Show this and end."},
};

constexpr std::string_view kAbout = R"(
Starts and supervises the workers of this node. When workers fail, or nodes join or leave, the
workers of all nodes are restarted. Takes torchrun's command line and PET_ variables.

  muster run --standalone --nproc-per-node=gpu train.py --epochs 3
      One machine, a worker for each GPU.
  muster run --nnodes=2:4 --max-restarts=3 --rdzv-id=job7 --rdzv-endpoint=host0:29400 train.py
      An elastic job of two to four nodes. The same line on each; host0 serves the rendezvous.
  muster run --nnodes=2 --node-rank=1 --master-addr=host0 --nproc-per-node=8 -m package.train
      The second of two static nodes.
  muster run --nnodes=2:4 --rdzv-id=job7 --rdzv-backend=etcd --rdzv-endpoint=etcd://h1,h2 train.py
      The same with a rendezvous in etcd: no machine of the job is special.

Options come before the script; all words after it are the script's. Dashes in names may be
underscores, and names may be abbreviated where that is unambiguous. A value on the command line
takes precedence over the variable shown with the option, and that over the default. Variables of
options without a value are 1 (on) or 0 (off).

)";

constexpr std::string_view kStatuses = R"(
Exit status: 0 all workers of this node succeeded; 1 workers failed, the rendezvous failed, a signal
ended it, or a value cannot be used; 2 usage error.)";

}  // namespace

std::vector<ArgumentSpec> LaunchTable(LaunchPersonality personality) {
  std::vector<ArgumentSpec> options(std::begin(kOptions), std::end(kOptions));
  if (personality == LaunchPersonality::kRun)
    std::erase_if(options, [](const ArgumentSpec& it) { return it.name == kUseEnv; });
  return options;
}

std::string LaunchHelp(LaunchPersonality personality) {
  return Concat(kLaunchUsage, '\n', kAbout, HelpOn(LaunchTable(personality), 100), kStatuses);
}

}  // namespace muster
