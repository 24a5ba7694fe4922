// `muster-lab bench`: measures store servers. One file for each kind of measurement; this file has
// what they share.
#include "program/bench.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "load/echo_server.h"
#include "load/process_meter.h"
#include "os/posix/host.h"

namespace muster::cli {

namespace {

constexpr Duration kStartPatience = 10s;

int RunEcho() {
  const Status served = load::RunEchoServer([](uint16_t port) {
    std::printf("{\"port\":%u}\n", unsigned{port});
    std::fflush(stdout);
  });
  if (!served) ThrowAsCliError(served.error(), "bench echo-server");
  return kOk;
}

/// The program `muster` in this program's folder: the program that users run is measured.
Result<std::string> MusterBeside() {
  const std::string own = OwnPath();
  std::string muster = own.substr(0, own.rfind('/') + 1) + "muster";
  if (access(muster.c_str(), X_OK) != 0) {
    return Error{Code::kInvalid,
                 Concat("there is no program '", Printable(muster),
                        "' to start a server with; build it, or name a server with --server")};
  }
  return muster;
}

}  // namespace

Result<BenchServer> StartServer(const std::vector<std::string>& command) {
  BenchServer server;
  MUSTER_TRY(server.child, load::Child::Start(command, kStartPatience));
  const auto line = nlohmann::json::parse(server.child->first_line(), nullptr, false);
  if (!line.is_object() || !line.contains("port") || !line["port"].is_number_unsigned()) {
    return Error{Code::kUnavailable, Concat("the server that was started printed '",
                                            Printable(server.child->first_line()), "', no port")};
  }
  server.endpoint = {"127.0.0.1", line["port"].get<uint16_t>()};
  server.pid = server.child->pid();
  return server;
}

Result<BenchServer> ReachServer(const std::string& address, pid_t pid, int threads) {
  if (address.empty()) {
    MUSTER_TRY(std::string muster, MusterBeside());
    return StartServer({std::move(muster), "serve", "--listen", "127.0.0.1:0", "--json",
                        "--threads", Concat(threads)});
  }
  BenchServer server;
  const Result<Endpoint> endpoint = ParseHostPort(address);
  if (!endpoint) return Error{Code::kInvalid, "--server " + endpoint.error().message};
  if (endpoint->port == 0) {
    return Error{Code::kInvalid, Concat("--server '", Printable(address),
                                        "' is not a place: the port must be from 1 to 65535")};
  }
  server.endpoint = *endpoint;
  if (server.endpoint.host.empty()) server.endpoint.host = "localhost";
  if (pid != 0) MUSTER_CHECK_OK(load::CpuTime(pid));  // fails now, not after the load
  server.pid = pid;
  return server;
}

std::string RunTag() {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(getpid()));
  return text;
}

double Microseconds(Duration duration) {
  return std::round(static_cast<double>(duration.count()) / 10.0) / 100.0;
}

double PerOperation(Duration duration, uint64_t operations) {
  if (operations == 0) return 0;
  return std::round(static_cast<double>(duration.count()) / static_cast<double>(operations)) /
         1000.0;
}

void PrintJsonLines(const std::vector<nlohmann::ordered_json>& objects) {
  std::printf("[\n");
  for (size_t i = 0; i < objects.size(); ++i) {
    std::printf("%s%s\n", objects[i].dump().c_str(), i + 1 < objects.size() ? "," : "");
  }
  std::printf("]\n");
}

void AddBench(CLI::App& app, Run* run) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure a store server: muster's, PyTorch's, or Redis.");
  bench->footer(
      "Without --server, a muster server is started for the measurement, in a process of its own.\n"
      "\n"
      "Examples:\n"
      "  muster-lab bench store --clients 64 --pipeline 16   throughput and latency under load\n"
      "  muster-lab bench store --connections-only 10000     how fast many clients get in, and "
      "their "
      "memory\n"
      "  muster-lab bench latency                            one client, compared with a bare "
      "libuv "
      "echo server\n"
      "  muster-lab bench wake                               waking one waiter among thousands\n"
      "  muster-lab bench soak                               10,000 nodes that come and go for "
      "minutes");
  bench->require_subcommand(1);
  AddBenchStore(*bench, run);
  AddBenchLatency(*bench, run);
  AddBenchWake(*bench, run);
  AddBenchRendezvous(*bench, run);
  AddBenchSoak(*bench, run);
  CLI::App* echo =
      bench->add_subcommand("echo-server", "The server that latencies are compared with.");
  echo->group("");  // hidden from the help text
  echo->callback([run] { *run = [] { return RunEcho(); }; });
}

}  // namespace muster::cli
