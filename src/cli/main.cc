// The `muster` program: reads the command line and runs the chosen subcommand, whose result is the
// exit status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "muster/etcd_rendezvous.h"

namespace muster::cli {
namespace {

constexpr const char* kAbout =
    R"(muster runs elastic training jobs on a fleet of machines: launcher, rendezvous and store.

  muster run --nproc-per-node 4 train.py  the workers of one node, as torchrun starts them
  muster serve --listen :29500            a server for rendezvous, and for PyTorch's TCPStore
  muster store --server HOST:29500 keys   read and change any TCPStore server, muster's or PyTorch's
  muster rendezvous --endpoint HOST:29400 --id RUN --nodes 2:4
                                          form a round with other nodes, also PyTorch's
  muster status                           your jobs here; with --server HOST:29400, those there
  muster etcd --dev --members 3           a throwaway etcd, until it is stopped

Exit status: 0 done, 1 failed, 2 usage error, 3 timed out, 4 no server,
5 the rendezvous is closed. Errors go to stderr; with --json also to stdout, as
{"error": "...", "status": N}.)";

/// `muster run`, or the program under torchrun's name: the rest is the launcher's.
std::optional<LaunchPersonality> AsLauncher(std::string_view called,
                                            std::vector<std::string>& arguments) {
  if (called.substr(called.rfind('/') + 1) == "torchrun") return LaunchPersonality::kRun;
  if (arguments.empty()) return std::nullopt;
  std::optional<LaunchPersonality> personality;
  if (arguments.front() == "run") personality = LaunchPersonality::kRun;
  if (arguments.front() == "launch") personality = LaunchPersonality::kLegacy;
  if (personality) arguments.erase(arguments.begin());
  return personality;
}

int Main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
#ifdef MUSTER_HAS_ETCD
  EnableEtcd();
#endif
  if (const auto personality = AsLauncher(argv[0], arguments))
    return RunJob(arguments, argv[0], *personality);
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command == "sim" || command == "bench")
    return ReportError(Concat("muster ", command, " is now muster-lab ", command), kUsage,
                       std::ranges::find(arguments, "--json") != arguments.end());
  CLI::App app(kAbout, "muster");
  Prepare(app);
  Run run;
  AddRun(app);
  AddServe(app, &run);
  AddStore(app, &run, &arguments);
  AddRendezvous(app, &run);
  AddStatus(app, &run);
  AddEtcd(app, &run);
  return ReadAndRun(app, std::move(arguments), run);
}

}  // namespace
}  // namespace muster::cli

/// Before the initialisation of libraries: gRPC opens a descriptor in it, which would get the
/// number of a standard descriptor that is closed.
[[gnu::constructor(101)]] static void BeforeAll() { muster::cli::OpenStandardDescriptors(); }

int main(int argc, char** argv) {
  return muster::cli::Finish(muster::cli::Main(argc, argv), "muster");
}
