// `muster-lab bench store`: throughput and latency of a store server under load, or what many
// connections cost it.
#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "base/text.h"
#include "cli/command_line.h"
#include "load/connections.h"
#include "load/store_load.h"
#include "os/posix/cores.h"
#include "program/bench.h"

namespace muster::cli {
namespace {

struct BenchStoreFlags {
  std::string server;
  pid_t server_pid = 0;
  int server_threads = 0;
  std::string protocol = "tcpstore";
  std::vector<std::string> ops{"get", "set", "add", "check"};
  double seconds = 2;
  double warm_up = 0.2;
  size_t connections_only = 0;
  bool json = false;
  load::LoadOptions options;
};

// A generator on half of the cores leaves the other half to the server; on one machine they
// compete.
size_t DefaultThreads() { return static_cast<size_t>(DefaultLoops()); }

nlohmann::ordered_json ToJson(const BenchStoreFlags& flags, load::LoadOp op,
                              const load::LoadReport& report) {
  const double seconds = static_cast<double>(report.elapsed.count()) / 1e9;
  nlohmann::ordered_json out;
  out["op"] = load::Name(op);
  out["ops_per_second"] = std::llround(static_cast<double>(report.operations) / seconds);
  out["p50_us"] = Microseconds(report.latency.Percentile(0.5));
  out["p99_us"] = Microseconds(report.latency.Percentile(0.99));
  out["p999_us"] = Microseconds(report.latency.Percentile(0.999));
  out["max_us"] = Microseconds(report.latency.max());
  out["errors"] = report.errors;
  if (!report.first_error.empty()) out["first_error"] = report.first_error;
  if (report.server_cpu) {
    out["server_cpu_us_per_op"] = PerOperation(*report.server_cpu, report.operations);
    out["server_cores"] =
        std::round(static_cast<double>(report.server_cpu->count()) / seconds / 1e7) / 100;
  }
  if (report.server_memory) {
    out["server_rss_bytes"] = report.server_memory->resident_bytes;
    out["server_peak_rss_bytes"] = report.server_memory->peak_bytes;
  }
  out["client_cpu_us_per_op"] = PerOperation(report.own_cpu, report.operations);
  out["client_cores"] =
      std::round(static_cast<double>(report.own_cpu.count()) / seconds / 1e7) / 100;
  out["operations"] = report.operations;
  out["seconds"] = seconds;
  out["protocol"] = flags.protocol;
  out["clients"] = flags.options.clients;
  out["pipeline"] = flags.options.pipeline;
  out["value_size"] = flags.options.value_bytes;
  out["keys"] = flags.options.keys;
  out["threads"] = flags.options.threads;
  out["seed"] = flags.options.seed;
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(report.work_hash));
  out["work_hash"] = hash;
  return out;
}

void PrintHeader(const BenchStoreFlags& flags) {
  std::printf("clients=%zu pipeline=%zu value=%s keys=%u threads=%zu seed=%llu protocol=%s\n",
              flags.options.clients, flags.options.pipeline,
              HumanBytes(flags.options.value_bytes).c_str(), flags.options.keys,
              flags.options.threads, static_cast<unsigned long long>(flags.options.seed),
              flags.protocol.c_str());
  std::printf("%-6s %11s %9s %9s %9s %7s %12s %11s %9s  %s\n", "op", "ops/s", "p50 us", "p99 us",
              "p99.9 us", "errors", "srv cpu us/op", "srv memory", "srv cores", "work");
}

void PrintRow(const nlohmann::ordered_json& row) {
  std::printf("%-6s %11lld %9.1f %9.1f %9.1f %7llu ", row["op"].get<std::string>().c_str(),
              row["ops_per_second"].get<long long>(), row["p50_us"].get<double>(),
              row["p99_us"].get<double>(), row["p999_us"].get<double>(),
              row["errors"].get<unsigned long long>());
  if (row.contains("server_cpu_us_per_op")) {
    std::printf("%13.3f %11s %9.2f", row["server_cpu_us_per_op"].get<double>(),
                HumanBytes(row["server_peak_rss_bytes"].get<uint64_t>()).c_str(),
                row["server_cores"].get<double>());
  } else {
    std::printf("%13s %11s %9s", "?", "?", "?");
  }
  std::printf("  %s\n", row["work_hash"].get<std::string>().c_str());
  std::fflush(stdout);
}

int BenchLoad(BenchStoreFlags& flags, const BenchServer& server) {
  std::vector<load::LoadOp> ops;
  for (const std::string& name : flags.ops) ops.push_back(OrExit(load::ParseLoadOp(name), "--ops"));
  flags.options.server = server.endpoint;
  flags.options.server_pid = server.pid;
  flags.options.tag = RunTag();
  flags.options.warm_up = ToDuration(flags.warm_up);
  const auto load = OrExit(load::StoreLoad::Open(flags.options), "bench store");
  if (!flags.json) PrintHeader(flags);
  std::vector<nlohmann::ordered_json> rows;
  uint64_t errors = 0;
  for (const load::LoadOp op : ops) {
    const load::LoadReport report =
        OrExit(load->Measure(op, ToDuration(flags.seconds)), "bench store");
    rows.push_back(ToJson(flags, op, report));
    if (!flags.json) PrintRow(rows.back());
    errors += report.errors;
    if (report.errors > 0) {
      std::fprintf(stderr, "muster: %s: %llu errors, the first: %s\n",
                   std::string(load::Name(op)).c_str(),
                   static_cast<unsigned long long>(report.errors), report.first_error.c_str());
    }
  }
  if (flags.json) PrintJsonLines(rows);
  return errors == 0 ? kOk : kFailed;
}

int BenchConnections(const BenchStoreFlags& flags, const BenchServer& server) {
  const load::ConnectionsReport report =
      OrExit(load::HoldConnections({.server = server.endpoint,
                                    .protocol = flags.options.protocol,
                                    .server_pid = server.pid,
                                    .count = flags.connections_only}),
             "bench store --connections-only");
  const double seconds = static_cast<double>(report.elapsed.count()) / 1e9;
  nlohmann::ordered_json out = {{"connections", flags.connections_only}, {"seconds", seconds}};
  if (report.memory) {
    out["server_rss_bytes"] = report.memory->resident_bytes;
    out["server_peak_rss_bytes"] = report.memory->peak_bytes;
    const uint64_t grown = report.memory->resident_bytes - report.memory_before->resident_bytes;
    out["server_bytes_per_connection"] = grown / flags.connections_only;
    out["server_cpu_us_per_connection"] = PerOperation(*report.server_cpu, flags.connections_only);
  }
  if (flags.json) {
    std::printf("%s\n", out.dump().c_str());
    return kOk;
  }
  std::printf("%zu connections opened and answered in %.3f s, held, and answered again\n",
              flags.connections_only, seconds);
  if (report.memory) {
    std::printf("the server holds %s, %s for each connection\n",
                HumanBytes(report.memory->resident_bytes).c_str(),
                HumanBytes(out["server_bytes_per_connection"].get<uint64_t>()).c_str());
  }
  return kOk;
}

int BenchStore(BenchStoreFlags& flags) {
  flags.options.protocol = OrExit(load::ParseProtocol(flags.protocol), "--protocol");
  if (flags.server.empty() && flags.options.protocol != load::Protocol::kTcpStore) {
    throw std::invalid_argument("--protocol redis needs --server: muster does not speak it");
  }
  if (flags.server.empty() && flags.server_pid != 0) {
    throw std::invalid_argument("--server-pid is about the server named with --server");
  }
  // Before the server is started, which inherits the limit.
  OrExit(load::AllowConnections(std::max(flags.connections_only, flags.options.clients)),
         "bench store");
  const BenchServer server =
      OrExit(ReachServer(flags.server, flags.server_pid, flags.server_threads), "bench store");
  return flags.connections_only > 0 ? BenchConnections(flags, server) : BenchLoad(flags, server);
}

constexpr const char* kMore =
    "Each client sends a batch of --pipeline requests in one write, reads all the replies, and "
    "starts over.\n"
    "Every reply is checked against what was stored; a wrong or missing one is an error, and "
    "errors end with\n"
    "status 1. A SET has no reply in TCPStore's protocol: a batch of SETs ends with one PING, "
    "whose echo shows\n"
    "that they were done, and which is not counted as an operation. CPU time and memory of the "
    "server are\n"
    "reported if it was started here or --server-pid names it. The keys are removed in the end.\n"
    "\n"
    "--json prints an array with one object for each operation, or one object for "
    "--connections-only.\n"
    "\n"
    "Examples:\n"
    "  muster-lab bench store --clients 64 --pipeline 16 --ops get,set --seconds 5\n"
    "  muster-lab bench store --server HOST:29500 --ops add --json       any TCPStore server, "
    "PyTorch's too\n"
    "  muster-lab bench store --server 127.0.0.1:6379 --protocol redis   Redis under the same "
    "load\n"
    "  muster-lab bench store --connections-only 10000                   open, greet and hold, "
    "nothing "
    "else";

void AddServerFlags(CLI::App& store, BenchStoreFlags& flags) {
  store.add_option("--server", flags.server,
                   "HOST:PORT of a running server; without it, one is started");
  store
      .add_option("--server-pid", flags.server_pid,
                  "Process of that server, to report its CPU time and memory")
      ->check(CLI::PositiveNumber);
  store
      .add_option("--server-threads", flags.server_threads,
                  "Threads of the server that is started; 0: cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  store.add_option("--protocol", flags.protocol, "tcpstore, or redis (GET, SET, INCR, EXISTS)")
      ->capture_default_str();
}

void AddLoadFlags(CLI::App& store, BenchStoreFlags& flags) {
  // The load generator checks combinations of options; here each value is only checked to fit its
  // type.
  const auto count = [&](const char* flag, auto& value, const char* help) {
    return store.add_option(flag, value, help)->transform(WholeNumber(0, UINT32_MAX));
  };
  const auto seconds = [&](const char* flag, double& value, double least, const char* help) {
    store.add_option(flag, value, help)->transform(SecondsFrom(least, 600))->capture_default_str();
  };
  count("--clients", flags.options.clients, "Connections")->capture_default_str();
  count("--pipeline", flags.options.pipeline, "Requests in one write")->capture_default_str();
  store.add_option("--ops", flags.ops, "Which operations, one after the other")
      ->delimiter(',')
      ->capture_default_str();
  seconds("--seconds", flags.seconds, 0.01, "Time to measure each operation");
  seconds("--warm-up", flags.warm_up, 0, "Seconds of load before each measurement");
  count("--value-size", flags.options.value_bytes, "Bytes of each value")->capture_default_str();
  count("--keys", flags.options.keys, "Distinct keys")->capture_default_str();
  count("--threads", flags.options.threads, "Threads of the load generator")->capture_default_str();
  store
      .add_option("--seed", flags.options.seed, "Chooses the requested keys; same seed, same work")
      ->transform(WholeNumber(0, UINT64_MAX))
      ->capture_default_str();
  store
      .add_option("--connections-only", flags.connections_only,
                  "Open and hold so many connections instead")
      ->transform(WholeNumber(1, UINT32_MAX));
}

}  // namespace

void AddBenchStore(CLI::App& bench, Run* run) {
  auto flags = std::make_shared<BenchStoreFlags>();
  flags->options.threads = DefaultThreads();
  CLI::App* store = bench.add_subcommand(
      "store", "Load a store server with many clients and report what it did.");
  store->footer(kMore);
  AddServerFlags(*store, *flags);
  AddLoadFlags(*store, *flags);
  store->add_flag("--json", flags->json, "Print JSON");
  store->callback([flags, run] { *run = [flags] { return BenchStore(*flags); }; });
}

}  // namespace muster::cli
