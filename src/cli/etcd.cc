// `muster etcd --dev`: a throwaway etcd, until a signal.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/process.h"
#include "etcd/etcd_server.h"
#include "muster/interruption.h"

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

void WarnOfWrongPath() {
  const char* const given = std::getenv("TORCHELASTIC_ETCD_BINARY_PATH");
  std::error_code ignored;
  if (given == nullptr || std::filesystem::exists(given, ignored)) return;
  TellStderr(Concat("muster: TORCHELASTIC_ETCD_BINARY_PATH names '", Printable(given),
                    "', which is not there: looking for 'etcd' on the PATH\n"));
}

/// Until a signal, or the end of the last member. Reports each member that ends, once.
int Serve(const EtcdServer& server, const StopSignals& signals) {
  constexpr auto kLook = std::chrono::milliseconds(250);
  const std::vector<std::string> endpoints = server.endpoints();
  std::vector<bool> reported(endpoints.size());
  while (!signals.AwaitFor(kLook)) {
    const auto ends = server.ends();
    const auto left = std::ranges::count_if(ends, [](const auto& end) { return !end; });
    for (size_t i = 0; i < ends.size(); ++i) {
      if (!ends[i] || reported[i]) continue;
      reported[i] = true;
      TellStderr(Concat("muster: etcd at ", endpoints[i], " ended with ", *ends[i], "; ", left,
                        " of ", ends.size(), " members are left\n"));
    }
    if (left == 0) return kFailed;
  }
  return kOk;
}

int Etcd(EtcdFlags& flags) {
  if (!flags.dev) {
    throw std::invalid_argument(
        "give --dev: this etcd is for development, and its data is removed when it stops; in "
        "production, run etcd itself on three or five machines");
  }
  const StopSignals signals;
  WarnOfWrongPath();
  EtcdServer server(flags.options);
  try {
    const ScopedInterruption on_signals(
        [&] { return signals.AwaitFor(std::chrono::milliseconds(0)).has_value(); });
    // With a given port, another attempt would meet the same problem.
    server.Start(ToMilliseconds(flags.start_seconds), flags.options.port == 0 ? 3 : 0);
  } catch (const InterruptedError&) {
    return kOk;
  }
  Announce(server, flags.json);
  const int status = Serve(server, signals);
  server.Stop();
  return status;
}

}  // namespace

void AddEtcd(CLI::App& app, Run* run) {
  auto flags = std::make_shared<EtcdFlags>();
  CLI::App* etcd = app.add_subcommand(
      "etcd",
      "Run a throwaway etcd on this machine, for development.\n"
      "\n"
      "Starts the program `etcd` (or the one that TORCHELASTIC_ETCD_BINARY_PATH names) on "
      "loopback, "
      "prints one\n"
      "line with its endpoints once it is healthy, and runs until SIGINT or SIGTERM, which end it "
      "with status 0\n"
      "and remove its data. It dies with this process, also by kill -9. A member that ends by "
      "itself is reported;\n"
      "when the last one has ended, this command ends with status 1.\n"
      "\n"
      "  muster etcd --dev                       one member, on a free port\n"
      "  muster etcd --dev --members 3           a cluster that survives the loss of one of them\n"
      "  muster etcd --dev --port 2379           where others expect it\n"
      "  muster etcd --dev --json                endpoints and process ids, to kill one and watch");
  etcd->add_flag("--dev", flags->dev, "Required: the data is removed when it stops");
  etcd->add_option("--members", flags->options.members, "Members of the cluster")
      ->transform(WholeNumber(1, 9))
      ->capture_default_str();
  etcd->add_option("--port", flags->options.port, "Port of the first member; 0: a free one")
      ->transform(WholeNumber(0, 65535))
      ->capture_default_str();
  etcd->add_option("--data-dir", flags->options.data_dir,
                   "Folder for the data while it runs; default: a temporary one");
  etcd->add_option("--start-seconds", flags->start_seconds,
                   "Seconds until all members must be healthy")
      ->transform(SecondsFrom(0.1, 3600))
      ->capture_default_str();
  etcd->add_flag("--json", flags->json, "Print the endpoints as JSON");
  etcd->callback([flags, run] { *run = [flags] { return Etcd(*flags); }; });
}

}  // namespace muster::cli
