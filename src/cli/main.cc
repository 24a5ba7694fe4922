// The `muster` program: reads the command line, runs the chosen subcommand, tells the outcome by
// its exit status.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "cli/commands.h"
#include "muster/error.h"
#include "muster/rendezvous_error.h"

namespace muster::cli {
namespace {

constexpr const char* kAbout =
    "muster gets a fleet of machines to agree on who is in a training job, in which order.\n"
    "\n"
    "  muster serve --listen :29500            a store server that PyTorch's TCPStore can use\n"
    "  muster store --server HOST:29500 keys   look into any TCPStore server, muster's or "
    "PyTorch's\n"
    "  muster rendezvous --endpoint HOST:29400 --id RUN --nodes 2:4\n"
    "                                          meet others, torchrun's agents too; get a rank\n"
    "  muster bench store --clients 64         measure a server\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 the call cannot be meant, 3 timed out, 4 no server,\n"
    "5 the rendezvous is closed.";

int Complain(const char* what, int status) {
  std::fprintf(stderr, "muster: %s\n", what);
  return status;
}

int Main(int argc, char** argv) {
  CLI::App app(kAbout, "muster");
  app.set_version_flag("--version", "muster " MUSTER_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Run run;
  AddServe(app, &run);
  AddStore(app, &run);
  AddRendezvous(app, &run);
  AddBench(app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    std::fprintf(stderr, "muster: %s (see 'muster --help')\n", wrong.what());
    return kUsage;
  }
  try {
    return run();
  } catch (const StoreTimeoutError& error) {
    return Complain(error.what(), kTimedOut);
  } catch (const RendezvousTimeoutError& error) {
    return Complain(error.what(), kTimedOut);
  } catch (const RendezvousConnectionError& error) {
    return Complain(error.what(), kNoServer);
  } catch (const RendezvousClosedError& error) {
    return Complain(error.what(), kClosed);
  } catch (const NetworkError& error) {
    return Complain(error.what(), kNoServer);
  } catch (const std::invalid_argument& error) {
    return Complain(error.what(), kUsage);
  } catch (const std::exception& error) {
    return Complain(error.what(), kFailed);
  }
}

}  // namespace
}  // namespace muster::cli

int main(int argc, char** argv) { return muster::cli::Main(argc, argv); }
