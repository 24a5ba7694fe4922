// `muster-lab bench latency`: one client, one request at a time, compared with a bare libuv echo
// server.
#include <cmath>
#include <cstdio>

#include "load/store_load.h"
#include "program/bench.h"

namespace muster::cli {
namespace {

using load::Histogram;
using load::LoadOp;

struct BenchLatencyFlags {
  int server_threads = 0;
  double seconds = 1;
  size_t rounds = 10;
  bool json = false;
};

struct LatencyRow {
  LoadOp op;
  Histogram store;
  Histogram echo;
  uint64_t errors = 0;
};

load::LoadOptions OneClient(const BenchServer& server, load::Protocol protocol) {
  load::LoadOptions options{.server = server.endpoint, .protocol = protocol};
  options.clients = 1;
  options.tag = RunTag();
  options.warm_up = 10ms;
  // Then a GET's reply is as long as its request, like an echo: 9 bytes and a key of 24; 8 bytes
  // and the value.
  options.value_bytes = 25;
  return options;
}

double RatioOfMedians(const LatencyRow& row) {
  const auto echo = static_cast<double>(row.echo.Percentile(0.5).count());
  const double ratio = echo > 0 ? static_cast<double>(row.store.Percentile(0.5).count()) / echo : 0;
  return std::round(ratio * 1000) / 1000;
}

nlohmann::ordered_json ToJson(const LatencyRow& row) {
  return {{"op", load::Name(row.op)},
          {"p50_us", Microseconds(row.store.Percentile(0.5))},
          {"p99_us", Microseconds(row.store.Percentile(0.99))},
          {"p999_us", Microseconds(row.store.Percentile(0.999))},
          {"echo_p50_us", Microseconds(row.echo.Percentile(0.5))},
          {"echo_p99_us", Microseconds(row.echo.Percentile(0.99))},
          {"p50_ratio", RatioOfMedians(row)},
          {"samples", row.store.count()},
          {"errors", row.errors}};
}

int BenchLatency(const BenchLatencyFlags& flags) {
  const BenchServer store_server =
      OrExit(ReachServer("", 0, flags.server_threads), "bench latency");
  const BenchServer echo_server =
      OrExit(StartServer({"/proc/self/exe", "bench", "echo-server"}), "bench latency");
  const auto store = OrExit(
      load::StoreLoad::Open(OneClient(store_server, load::Protocol::kTcpStore)), "bench latency");
  const auto echo =
      OrExit(load::StoreLoad::Open(OneClient(echo_server, load::Protocol::kEcho)), "bench latency");
  std::vector<LatencyRow> rows;
  for (const LoadOp op : {LoadOp::kGet, LoadOp::kCheck, LoadOp::kAdd})
    rows.push_back({.op = op, .store = {}, .echo = {}});
  // They take turns, so that other work on the machine affects both.
  const Duration turn = ToDuration(flags.seconds / static_cast<double>(flags.rounds));
  uint64_t errors = 0;
  for (size_t round = 0; round < flags.rounds; ++round) {
    for (LatencyRow& row : rows) {
      const load::LoadReport ours = OrExit(store->Measure(row.op, turn), "bench latency");
      const load::LoadReport bare = OrExit(echo->Measure(row.op, turn), "bench latency");
      row.store.Merge(ours.latency);
      row.echo.Merge(bare.latency);
      row.errors += ours.errors + bare.errors;
      errors += ours.errors + bare.errors;
    }
  }
  std::vector<nlohmann::ordered_json> objects;
  for (const LatencyRow& row : rows) objects.push_back(ToJson(row));
  if (flags.json) {
    PrintJsonLines(objects);
    return errors == 0 ? kOk : kFailed;
  }
  std::printf("%-6s %9s %9s %12s %12s %10s %7s\n", "op", "p50 us", "p99 us", "echo p50 us",
              "echo p99 us", "p50 ratio", "errors");
  for (const auto& object : objects) {
    std::printf("%-6s %9.2f %9.2f %12.2f %12.2f %10.2f %7llu\n",
                object["op"].get<std::string>().c_str(), object["p50_us"].get<double>(),
                object["p99_us"].get<double>(), object["echo_p50_us"].get<double>(),
                object["echo_p99_us"].get<double>(), object["p50_ratio"].get<double>(),
                object["errors"].get<unsigned long long>());
  }
  return errors == 0 ? kOk : kFailed;
}

}  // namespace

void AddBenchLatency(CLI::App& bench, Run* run) {
  auto flags = std::make_shared<BenchLatencyFlags>();
  CLI::App* latency = bench.add_subcommand(
      "latency", "Send muster's server and a bare libuv echo server one request at a time.");
  latency->footer(
      "Both run in processes of their own and get requests in turns, over loopback, from the same "
      "client with\n"
      "requests of the same size. The ratio of the medians is the cost of a store compared with "
      "moving the "
      "bytes.\n"
      "\n"
      "Example:\n"
      "  muster-lab bench latency --seconds 5 --json");
  latency->add_option("--seconds", flags->seconds, "Time to measure each operation on each server")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  latency->add_option("--rounds", flags->rounds, "Turns that the time is divided into")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  latency
      ->add_option("--server-threads", flags->server_threads,
                   "Threads of muster's server; 0: cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  latency->add_flag("--json", flags->json, "Print an array with one object for each operation");
  latency->callback([flags, run] { *run = [flags] { return BenchLatency(*flags); }; });
}

}  // namespace muster::cli
