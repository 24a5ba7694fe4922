// `muster etcd --dev`: runs a throwaway etcd until a signal.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "base/text.h"
#include "cli/commands.h"
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
  PrintResult(json, {{"endpoints", endpoints}, {"pids", server.pids()}, {"url", url}},
              Concat("muster: etcd is at ", url));
}

void WarnOfWrongPath() {
  const char* const given = std::getenv("TORCHELASTIC_ETCD_BINARY_PATH");
  std::error_code ignored;
  if (given == nullptr || std::filesystem::exists(given, ignored)) return;
  PrintNotice(Concat("TORCHELASTIC_ETCD_BINARY_PATH names '", Printable(given),
                     "', which is not there: looking for 'etcd' on the PATH"));
}

/// Serves until a signal, or the end of the last member. Reports each member that ends, once.
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
      PrintNotice(Concat("etcd at ", endpoints[i], " ended with ", *ends[i], "; ", left, " of ",
                         ends.size(), " members are left"));
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
  constexpr const char* kAbout = R"(Run a throwaway etcd on this machine, for development.

Starts the program `etcd` (or the one that TORCHELASTIC_ETCD_BINARY_PATH names) on loopback, prints
one line with its endpoints once it is healthy, and runs until SIGINT or SIGTERM, which end it with
status 0 and remove its data. It dies with this process, also by kill -9. A member that ends by
itself is reported; when the last one has ended, this command ends with status 1.

  muster etcd --dev                       one member, on a free port
  muster etcd --dev --members 3           a cluster that survives the loss of one of them
  muster etcd --dev --port 2379           where others expect it
  muster etcd --dev --json                endpoints and process ids, to kill one and watch)";
  auto [etcd, flags] = AddCommand(app, run, "etcd", kAbout, Etcd);
  etcd.add_flag("--dev", flags.dev, "Required: the data is removed when it stops");
  AddWhole(etcd, "--members", flags.options.members, 1, 9, "Members of the cluster");
  AddWhole(etcd, "--port", flags.options.port, 0, 65535, "Port of the first member; 0: a free one");
  etcd.add_option("--data-dir", flags.options.data_dir,
                  "Folder for the data while it runs; default: a temporary one");
  AddSeconds(etcd, "--start-seconds", flags.start_seconds, 0.1, 3600,
             "Seconds until all members must be healthy");
  etcd.add_flag("--json", flags.json, "Print the endpoints as JSON");
}

}  // namespace muster::cli
