// The program `muster-lab`: measures servers and simulates fleets. It is not installed.
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/process.h"
#include "muster/etcd_rendezvous.h"
#include "program/commands.h"

namespace muster::cli {
namespace {

constexpr const char* kAbout =
    "muster-lab measures and simulates muster.\n"
    "\n"
    "  muster-lab bench store --clients 64   measure a server\n"
    "  muster-lab sim --seed 57 --story      run a fleet in a simulated world, and print what "
    "happens\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 usage error, 3 timed out, 4 no server. A failure is reported "
    "on\n"
    "stderr; with --json also on stdout, as {\"error\": \"...\", \"status\": N}.";

int Main(int argc, char** argv) {
#ifdef MUSTER_HAS_ETCD
  EnableEtcd();
#endif
  CLI::App app(kAbout, "muster-lab");
  Prepare(app);
  Run run;
  AddSim(app, &run);
  AddBench(app, &run);
  return ReadAndRun(app, std::vector<std::string>(argv + 1, argv + argc), run);
}

}  // namespace
}  // namespace muster::cli

/// Before any other initialisation: gRPC opens a descriptor then. It must not get the number of a
/// standard descriptor that is closed when this process starts.
[[gnu::constructor(101)]] static void BeforeAll() { muster::cli::OpenStandardDescriptors(); }

int main(int argc, char** argv) {
  return muster::cli::Finish(muster::cli::Main(argc, argv), "muster-lab");
}
