#include <iterator>

#include "base/text.h"
#include "launch/options/launch_options.h"

namespace muster {

namespace {

using enum ArgumentSpec::Kind;

constexpr std::string_view kUseEnv = "use-env";  // of the older launcher only

/// Sets a field that few options have.
template <auto field>
constexpr auto kWith = [](auto value, ArgumentSpec spec) {
  spec.*field = value;
  return spec;
};
constexpr auto Under = kWith<&ArgumentSpec::group>;
constexpr auto Letter = kWith<&ArgumentSpec::letter>;
constexpr auto OneOf = kWith<&ArgumentSpec::choices>;
constexpr auto AlsoFrom = kWith<&ArgumentSpec::older_variable>;
constexpr auto HasVariable = kWith<&ArgumentSpec::has_variable>;
constexpr auto IsOurs = kWith<&ArgumentSpec::ours>;

/// The help has them in this order.
constexpr ArgumentSpec kOptions[] = {
    Under("Nodes and workers", {"nnodes", kText, "N|MIN:MAX", "1:1",
                                "Number of nodes, or the minimum and maximum of an elastic job."}),
    {"nproc-per-node", kText, "N|WORD", "1",
     "Workers on this node: a number, gpu or xpu (one for each), cpu (one for each logical "
     "CPU), auto (accelerators if there are any, else CPUs)."},
    {"role", kText, "NAME", "default",
     "Role of these workers. Workers of one role also have ranks within it."},
    {"local-addr", kText, "ADDR", "",
     "Address at which other nodes reach this one. Without it: determined automatically."},
    HasVariable(
        false,
        OneOf(
            "node,socket,exclusive,core-complex",
            {"numa-binding", kText, "MODE", "",
             "Keep each worker on CPUs near its GPU: node, socket, exclusive (cores divided among "
             "the GPUs of a node) or core-complex (one shared cache)."})),
    {"virtual-local-rank", kFlag, "", "", "Each worker sees one GPU only, and LOCAL_RANK=0."},
    Under("Rendezvous", {"standalone", kFlag, "", "",
                         "A job of one node; needs no endpoint, no port and no id."}),
    {"rdzv-backend", kText, "NAME", "",
     "muster, c10d (that of torchrun, whose agents can join), static, etcd or etcd-v2. "
     "Without it: static where --node-rank, --master-addr or --master-port is given, else "
     "muster."},
    {"rdzv-endpoint", kText, "HOST:PORT", "", "Address of the rendezvous, the same on all nodes."},
    {"rdzv-id", kText, "ID", "none",
     "Id of the job, the same on all nodes. Jobs with different ids are separate."},
    {"rdzv-conf", kText, "K=V,...", "",
     "Options of the backend, such as join_timeout=600,last_call_timeout=30."},
    {"node-rank", kWhole, "N", "0", "Rank of this node, from 0. Static only."},
    {"master-addr", kText, "ADDR", "127.0.0.1",
     "Address of node 0, if there is no --rdzv-endpoint. Static only."},
    {"master-port", kWhole, "PORT", "29500",
     "Port on node 0, if there is no --rdzv-endpoint. Static only."},
    Under("Program", Letter('m', {"module", kFlag, "", "",
                                  "The script is a Python module: python -m SCRIPT."})),
    {"no-python", kFlag, "", "", "The script is a program, found on PATH, and run without Python."},
    {"run-path", kFlag, "", "",
     "Run the script with its exceptions recorded; overrides --module and --no-python."},
    OneOf("spawn,fork,forkserver",
          {"start-method", kText, "METHOD", "spawn",
           "spawn, fork or forkserver. Has no effect: workers are always new processes."}),
    IsOurs(true, {"python", kText, "PATH", "",
                  "Interpreter of the workers, where PYTHON_EXEC is not set. Without both: the one "
                  "next to this program, of the active environment, or on PATH."}),
    HasVariable(false, {kUseEnv, kFlag, "", "",
                        "Do not pass --local-rank=N to the script: it reads LOCAL_RANK."}),
    Under("Supervision", {"max-restarts", kWhole, "N", "0",
                          "How often the workers of this node may fail and be restarted."}),
    {"monitor-interval", kFraction, "SECONDS", "0.1",
     "Time between two queries for changes of membership; only c10d is queried. "
     "The ends of workers, and all other backends, are reported by events."},
    AlsoFrom("TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
             {"shutdown-timeout", kWhole, "SECONDS", "30",
              "Time for workers to end after the signal, before they are killed. Also from "
              "TORCH_ELASTIC_SHUTDOWN_TIMEOUT. In torchrun from 2.12 on."}),
    IsOurs(
        true,
        AlsoFrom("TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT",
                 {"exit-barrier-timeout", kWhole, "SECONDS", "300",
                  "Time for the workers of other nodes to end after those of this node. Also from "
                  "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT."})),
    {"signals-to-handle", kText, "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     "Signals that are forwarded to the workers and end this program after them."},
    Under("Logs and reports",
          {"log-dir", kText, "DIR", "",
           "Folder of worker logs and error files. Without it: a temporary folder."}),
    Letter('r', {"redirects", kText, "STREAMS", "0",
                 "Write streams of workers to files only: 0 none, 1 stdout, 2 stderr, 3 both, or "
                 "0:1,1:3 by worker."}),
    Letter('t', {"tee", kText, "STREAMS", "0",
                 "Write them to files and show them, each line with its worker's rank."}),
    {"local-ranks-filter", kText, "N,...", "", "Show these workers only. Without it: all."},
    {"duplicate-stdout-filters", kText, "TEXTS", "",
     "Copy lines of teed stdout that contain one of these texts to one file. Commas "
     "divide; two of them are one in a text."},
    {"duplicate-stderr-filters", kText, "TEXTS", "", "The same for stderr."},
    {"event-log-handler", kText, "SINK", "null",
     "Destination of lifecycle events: null (none), console (JSON on stderr), or "
     "file:PATH (JSON with real times, appended)."},
    HasVariable(false, {"logs-specs", kText, "NAME", "",
                        "A Python plug-in. It cannot be loaded here: use torchrun for that."}),
    IsOurs(true, {"failure-report", kText, "FILE", "",
                  "Also write to this file, as JSON, which worker failed first and how."}),
    IsOurs(true, {"quiet", kFlag, "", "", "Print failures only."}),
    IsOurs(true, {"verbose", kFlag, "", "", "Print what happens, and why."}),
    Letter('h', {"help", kHelp, "", "", "Show this and end."}),
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
