// `muster bench rendezvous`: how long N nodes take to agree through one shared state, and how often
// they get into each other's way.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <latch>
#include <stdexcept>
#include <thread>

#include "base/text.h"
#include "cli/bench.h"
#include "load/descriptor.h"
#include "muster/rendezvous.h"

namespace muster::cli {
namespace {

struct BenchRendezvousFlags {
  std::string server;
  int server_threads = 0;
  std::vector<size_t> nodes{4, 16, 64, 256};
  bool json = false;
};

using Handlers = std::vector<std::unique_ptr<DynamicRendezvousHandler>>;

Handlers MakeHandlers(const BenchServer& server, size_t count, const std::string& run_id) {
  Handlers handlers;
  const auto size = static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const RendezvousParameters parameters("c10d", server.endpoint.ToString(), run_id, size, size,
                                          "127.0.0.1", {{"is_host", false}});
    C10dRendezvous made = CreateC10dBackend(parameters);
    handlers.push_back(
        CreateDynamicHandler(std::move(made.store), std::move(made.backend), parameters));
  }
  return handlers;
}

// All nodes start in one instant; the last one to have its rank ends the clock.
nlohmann::ordered_json Measure(const BenchServer& server, size_t count) {
  const Handlers handlers = MakeHandlers(server, count, Concat("bench-", RunTag(), "-", count));
  std::vector<int64_t> ranks(count, -1);
  std::latch start(static_cast<std::ptrdiff_t>(count) + 1);
  std::vector<std::thread> nodes;
  for (size_t i = 0; i < count; ++i) {
    nodes.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        ranks[i] = handlers[i]->NextRendezvous().rank;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "muster: a node failed: %s\n", error.what());
      }
    });
  }
  start.arrive_and_wait();
  const auto began = std::chrono::steady_clock::now();
  for (std::thread& node : nodes) node.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;

  std::ranges::sort(ranks);
  int64_t errors = 0;
  for (size_t i = 0; i < count; ++i) errors += ranks[i] == static_cast<int64_t>(i) ? 0 : 1;
  RendezvousCost cost;
  for (const auto& handler : handlers) {
    cost.reads += handler->cost().reads;
    cost.writes += handler->cost().writes;
    cost.lost += handler->cost().lost;
  }
  const auto per_node = [&](int64_t total) {
    return static_cast<double>(total * 100 / static_cast<int64_t>(count)) / 100;
  };
  return {{"nodes", count},
          {"seconds", std::round(took.count() * 1e4) / 1e4},
          {"writes_per_node", per_node(cost.writes)},
          {"lost_per_node", per_node(cost.lost)},
          {"reads_per_node", per_node(cost.reads)},
          {"errors", errors}};
}

int BenchRendezvous(const BenchRendezvousFlags& flags) {
  const size_t most = *std::ranges::max_element(flags.nodes);
  OrExit(load::AllowConnections(2 * most + 64), "bench rendezvous");
  const BenchServer server =
      OrExit(ReachServer(flags.server, 0, flags.server_threads), "bench rendezvous");
  std::vector<nlohmann::ordered_json> objects;
  if (!flags.json) {
    std::printf("%7s %9s %16s %15s %15s %7s\n", "nodes", "seconds", "writes per node",
                "lost per node", "reads per node", "errors");
  }
  bool right = true;
  for (const size_t count : flags.nodes) {
    objects.push_back(Measure(server, count));
    const auto& row = objects.back();
    right = right && row["errors"] == 0;
    if (flags.json) continue;
    std::printf("%7zu %9.3f %16.2f %15.2f %15.2f %7lld\n", count, row["seconds"].get<double>(),
                row["writes_per_node"].get<double>(), row["lost_per_node"].get<double>(),
                row["reads_per_node"].get<double>(), row["errors"].get<long long>());
    std::fflush(stdout);
  }
  if (flags.json) PrintJsonLines(objects);
  return right ? kOk : kFailed;
}

}  // namespace

void AddBenchRendezvous(CLI::App& bench, Run* run) {
  auto flags = std::make_shared<BenchRendezvousFlags>();
  CLI::App* rendezvous = bench.add_subcommand(
      "rendezvous", "Time for N nodes to agree through the c10d backend, all starting at once.");
  rendezvous->footer(
      "Every node is a handler with connections of its own, all in this process; minimum and "
      "maximum "
      "are N.\n"
      "A write is an attempt to replace the shared state; it is lost if another node was faster.\n"
      "\n"
      "Examples:\n"
      "  muster bench rendezvous --nodes 64,256\n"
      "  muster bench rendezvous --nodes 64 --server HOST:29500 --json   any TCPStore server");
  rendezvous->add_option("--server", flags->server,
                         "HOST:PORT of a running server; without it, one is started");
  rendezvous
      ->add_option("--server-threads", flags->server_threads,
                   "Threads of the server that is started; 0: cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  rendezvous->add_option("--nodes", flags->nodes, "How many nodes, one run for each")
      ->delimiter(',')
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  rendezvous->add_flag("--json", flags->json, "Print JSON");
  rendezvous->callback([flags, run] { *run = [flags] { return BenchRendezvous(*flags); }; });
}

}  // namespace muster::cli
