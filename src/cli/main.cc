// The `muster` program: reads the command line, runs the chosen subcommand, tells the outcome by
// its exit status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/process.h"
#include "muster/etcd_v2_rendezvous.h"

namespace muster::cli {
namespace {

constexpr const char* kAbout =
    "muster gets a fleet of machines to agree on who is in a training job, in which order.\n"
    "\n"
    "  muster run --nproc-per-node 4 train.py  the workers of one node, as torchrun starts them\n"
    "  muster serve --listen :29500            a server for rendezvous, and for PyTorch's "
    "TCPStore\n"
    "  muster store --server HOST:29500 keys   look into any TCPStore server, muster's or "
    "PyTorch's\n"
    "  muster rendezvous --endpoint HOST:29400 --id RUN --nodes 2:4\n"
    "                                          meet other nodes, PyTorch's too; get a rank\n"
    "  muster status --server HOST:29400       who is in which round, and for whom it waits\n"
    "  muster etcd --dev --members 3           an etcd of one's own, until it is stopped\n"
    "  muster bench store --clients 64         measure a server\n"
    "  muster sim --seed 8123 --story          a fleet in a simulated world, and what goes wrong "
    "there\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 the call cannot be meant, 3 timed out, 4 no server,\n"
    "5 the rendezvous is closed. A failure is told on stderr; with --json also on stdout, as\n"
    "{\"error\": \"...\", \"status\": N}.";

/// The subcommands that `app` offers to people: "serve, store, bench".
std::string Offered(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;  // hidden
    names += Concat(names.empty() ? "" : ", ", command->get_name());
  }
  return names;
}

/// What is wrong with the command line, and whose --help tells more.
std::string Explain(const CLI::App& app, const CLI::ParseError& wrong) {
  // The (sub)command in question: the first that was given something it does not know, or else the
  // innermost.
  const CLI::App* at = &app;
  std::string name = app.get_name();
  while (at->remaining().empty() && !at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  std::vector<std::string> strangers = at->remaining();
  std::erase(strangers, "--");
  const std::string stranger = strangers.empty() ? "" : Printable(strangers.front());
  const bool wants_command =
      at->get_require_subcommand_min() > 0 && (at->get_subcommands().empty() || !stranger.empty());

  std::string what = wrong.what();
  if (wants_command && (stranger.empty() || stranger.starts_with('-'))) {
    what = Concat(stranger.empty() ? "" : Concat("'", stranger, "' was not expected; "),
                  "name one of: ", Offered(*at));
  } else if (wants_command) {
    what = Concat("no command '", stranger, "'; there are: ", Offered(*at));
  } else if (dynamic_cast<const CLI::ExtrasError*>(&wrong) != nullptr && !stranger.empty()) {
    what = Concat("'", stranger, "' was not expected");
    if (name == "muster store") what += "; a word that starts with '-' goes behind '--'";
  }
  return Concat(what, " (see '", name, " --help')");
}

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
  CLI::App app(kAbout, "muster");
  app.set_version_flag("--version", "muster " MUSTER_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Run run;
  AddRun(app);
  AddServe(app, &run);
  AddStore(app, &run, &arguments);
  AddRendezvous(app, &run);
  AddStatus(app, &run);
  AddEtcd(app, &run);
  AddSim(app, &run);
  AddBench(app, &run);
  // Looked for by hand: a command line that cannot be read has no flags.
  const bool json = std::ranges::find(arguments, "--json") != arguments.end();
  try {
    std::ranges::reverse(arguments);  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    return Complain(Explain(app, wrong), kUsage, json);
  }
  try {
    return run();
  } catch (const std::exception& error) {
    return Complain(error, json);
  }
}

/// A result that nobody could read is no success.
int Finish(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  ReportStderr("muster: cannot write to standard output\n");
  return status == kOk ? kFailed : status;
}

}  // namespace
}  // namespace muster::cli

/// Before anything else in this program is initialised: gRPC opens a descriptor then, and would be
/// given the number of one that we were started without.
[[gnu::constructor(101)]] static void BeforeAll() { muster::cli::OpenStandardDescriptors(); }

int main(int argc, char** argv) { return muster::cli::Finish(muster::cli::Main(argc, argv)); }
