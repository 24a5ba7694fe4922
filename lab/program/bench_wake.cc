// `muster-lab bench wake`: whether waking one waiter depends on how many others there are.
#include <algorithm>
#include <cstdio>

#include "load/descriptor.h"
#include "load/wake.h"
#include "program/bench.h"

namespace muster::cli {
namespace {

struct BenchWakeFlags {
  std::string server;
  int server_threads = 0;
  bool json = false;
  load::WakeOptions options{.server = {}, .waiters = {0, 100, 1000, 10000}};
};

int BenchWake(BenchWakeFlags& flags) {
  OrExit(flags.options.Validate(), "bench wake");
  OrExit(load::AllowConnections(
             *std::max_element(flags.options.waiters.begin(), flags.options.waiters.end())),
         "bench wake");
  const BenchServer server =
      OrExit(ReachServer(flags.server, 0, flags.server_threads), "bench wake");
  flags.options.server = server.endpoint;
  flags.options.tag = RunTag();
  const std::vector<load::WakePoint> points =
      OrExit(load::MeasureWakes(flags.options), "bench wake");
  std::vector<nlohmann::ordered_json> objects;
  for (const load::WakePoint& point : points) {
    objects.push_back({{"waiters", point.waiters},
                       {"p50_us", Microseconds(point.latency.Percentile(0.5))},
                       {"p99_us", Microseconds(point.latency.Percentile(0.99))},
                       {"max_us", Microseconds(point.latency.max())},
                       {"wakes", point.latency.count()}});
  }
  if (flags.json) {
    PrintJsonLines(objects);
    return kOk;
  }
  std::printf("%9s %9s %9s %9s\n", "waiters", "p50 us", "p99 us", "wakes");
  for (const auto& object : objects) {
    std::printf("%9zu %9.2f %9.2f %9llu\n", object["waiters"].get<size_t>(),
                object["p50_us"].get<double>(), object["p99_us"].get<double>(),
                object["wakes"].get<unsigned long long>());
  }
  return kOk;
}

}  // namespace

void AddBenchWake(CLI::App& bench, Run* run) {
  auto flags = std::make_shared<BenchWakeFlags>();
  CLI::App* wake = bench.add_subcommand(
      "wake", "Time from a SET to the wake of its one waiter, while others wait for other keys.");
  wake->footer(
      "Each of the others has a connection of its own. The time should not depend on their "
      "number.\n"
      "\n"
      "Example:\n"
      "  muster-lab bench wake --waiters 0,100,1000,10000 --json");
  wake->add_option("--server", flags->server,
                   "HOST:PORT of a running server; without it, one is started");
  wake->add_option("--server-threads", flags->server_threads,
                   "Threads of the server that is started; 0: cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  wake->add_option("--waiters", flags->options.waiters, "Numbers of other waiters")
      ->delimiter(',')
      ->capture_default_str();
  wake->add_option("--wakes", flags->options.wakes, "Wakes measured in each pass")
      ->capture_default_str();
  wake->add_option("--passes", flags->options.passes, "Passes over all the numbers")
      ->capture_default_str();
  wake->add_flag("--json", flags->json,
                 "Print an array with one object for each number of waiters");
  wake->callback([flags, run] { *run = [flags] { return BenchWake(*flags); }; });
}

}  // namespace muster::cli
