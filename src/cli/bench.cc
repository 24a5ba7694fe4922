// `muster bench`: measures store servers. One file for each kind of measurement; this one has what
// they share.
#include "cli/bench.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "cli/flags.h"
#include "load/echo_server.h"
#include "load/process_meter.h"
#include "muster/error.h"

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

}  // namespace

Result<BenchServer> StartOwn(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "/proc/self/exe");
  BenchServer server;
  MUSTER_TRY(server.child, load::Child::Start(arguments, kStartPatience));
  const auto line = nlohmann::json::parse(server.child->first_line(), nullptr, false);
  if (!line.is_object() || !line.contains("port") || !line["port"].is_number_unsigned()) {
    return Error{Code::kUnavailable, Concat("our own server said '",
                                            Printable(server.child->first_line()), "', no port")};
  }
  server.endpoint = {"127.0.0.1", line["port"].get<uint16_t>()};
  server.pid = server.child->pid();
  return server;
}

Result<BenchServer> ReachServer(const std::string& address, pid_t pid, int threads) {
  if (address.empty()) {
    return StartOwn({"serve", "--listen", "127.0.0.1:0", "--json", "--threads", Concat(threads)});
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
  if (pid != 0) MUSTER_CHECK_OK(load::CpuTime(pid));  // said now, not after the load
  server.pid = pid;
  return server;
}

std::string RunTag() {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(getpid()));
  return text;
}

void ThrowAsCliError(const Error& error, const std::string& what) {
  const std::string message = what + ": " + error.message;
  switch (error.code) {
    case Code::kInvalid:
    case Code::kNotFound:
      throw std::invalid_argument(message);
    case Code::kTimeout:
      throw StoreTimeoutError(message);
    case Code::kUnavailable:
    case Code::kClosed:
      throw NetworkError(message);
    default:
      throw std::runtime_error(message);
  }
}

Duration ToDuration(double seconds) {
  // CLI11 takes nan for a number within every range.
  if (!(seconds >= 0 && seconds <= kSecondsMax)) {
    throw std::invalid_argument(Concat("'", std::to_string(seconds), "' is not a time in seconds"));
  }
  return Duration(static_cast<int64_t>(seconds * 1e9));
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
      "  muster bench store --clients 64 --pipeline 16   throughput and latency under load\n"
      "  muster bench store --connections-only 10000     how fast many clients get in, and their "
      "memory\n"
      "  muster bench latency                            one client, beside a bare libuv echo "
      "server\n"
      "  muster bench wake                               waking one waiter among thousands\n"
      "  muster bench soak                               10,000 nodes that come and go for "
      "minutes");
  bench->require_subcommand(1);
  AddBenchStore(*bench, run);
  AddBenchLatency(*bench, run);
  AddBenchWake(*bench, run);
  AddBenchRendezvous(*bench, run);
  AddBenchSoak(*bench, run);
  CLI::App* echo = bench->add_subcommand("echo-server", "What latencies are measured against.");
  echo->group("");  // not for people
  echo->callback([run] { *run = [] { return RunEcho(); }; });
}

}  // namespace muster::cli
