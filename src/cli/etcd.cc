// `muster etcd --dev`: an etcd of one's own, until it is told to stop.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/process.h"
#include "muster/etcd_server.h"

namespace muster::cli {
namespace {

struct EtcdFlags {
  bool dev = false;
  bool json = false;
  double start_seconds = 60;
  EtcdServerOptions options;
};

void Announce(const EtcdServer& server, bool json) {
  const std::vector<std::string> endpoints = server.endpoints();
  std::string url;
  for (const std::string& each : endpoints) url += Concat(url.empty() ? "etcd://" : ",", each);
  if (json) {
    const nlohmann::json line = {{"url", url}, {"endpoints", endpoints}, {"pids", server.pids()}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("muster: etcd is at %s\n", url.c_str());
  }
  std::fflush(stdout);
}

int Etcd(EtcdFlags& flags) {
  if (!flags.dev) {
    throw std::invalid_argument(
        "say --dev: this etcd is for trying things out, and its data go with it; for a fleet, run "
        "etcd itself on three or five machines");
  }
  const StopSignals signals;
  EtcdServer server(flags.options);
  // Somebody who names a port wants that one: another attempt would not get it either.
  server.Start(ToMilliseconds(flags.start_seconds), flags.options.port == 0 ? 3 : 0);
  Announce(server, flags.json);
  signals.Await();
  server.Stop();
  return kOk;
}

}  // namespace

void AddEtcd(CLI::App& app, Run* run) {
  auto flags = std::make_shared<EtcdFlags>();
  CLI::App* etcd = app.add_subcommand(
      "etcd",
      "Run an etcd of one's own on this machine, to try out what stands on etcd.\n"
      "\n"
      "Starts the program `etcd` (or the one that TORCHELASTIC_ETCD_BINARY_PATH names) on "
      "loopback, "
      "prints one\n"
      "line with its endpoints once it is healthy, and runs until SIGINT or SIGTERM, which end it "
      "with status 0\n"
      "and remove its data. It dies with this process, also by kill -9.\n"
      "\n"
      "  muster etcd --dev                       one member, on a free port\n"
      "  muster etcd --dev --members 3           a cluster that survives the loss of one of them\n"
      "  muster etcd --dev --port 2379           where others expect it\n"
      "  muster etcd --dev --json                endpoints and process ids, to kill one and watch");
  etcd->add_flag("--dev", flags->dev, "Says that you know: for development, nothing is kept");
  etcd->add_option("--members", flags->options.members, "How many, as one cluster")
      ->transform(WholeNumber(1, 9))
      ->capture_default_str();
  etcd->add_option("--port", flags->options.port, "Of the first member; 0: a free one")
      ->transform(WholeNumber(0, 65535))
      ->capture_default_str();
  etcd->add_option("--data-dir", flags->options.data_dir,
                   "Folder for the data while it runs; default: a temporary one");
  etcd->add_option("--start-seconds", flags->start_seconds, "Time it has to get healthy")
      ->transform(SecondsFrom(0.1, 3600))
      ->capture_default_str();
  etcd->add_flag("--json", flags->json, "Print the endpoints as JSON");
  etcd->callback([flags, run] { *run = [flags] { return Etcd(*flags); }; });
}

}  // namespace muster::cli
