// `muster-lab bench rendezvous`: how long N nodes take to agree, what it costs, and how long the
// surviving nodes take when some of them die.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "base/text.h"
#include "cli/command_line.h"
#include "load/descriptor.h"
#include "load/fleet.h"
#include "load/process_meter.h"
#include "muster/rendezvous.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "program/bench.h"
#include "rendezvous/session/status_client.h"
#ifdef MUSTER_HAS_ETCD
#include "etcd/etcd_server.h"
#include "etcd/grpc/grpc_etcd.h"
#endif

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchRendezvousFlags {
  std::string backend = "muster";
  std::string server;
  pid_t server_pid = 0;
  int server_threads = 0;
  std::vector<size_t> nodes{4, 64, 256};
  size_t rounds = 1;
  size_t kill = 0;
  double last_call_seconds = 0.1;
  double hold_seconds = 0;
  bool json = false;
};

double Seconds(Duration time) { return std::round(static_cast<double>(time.count()) / 1e5) / 1e4; }
double Hundredths(double value) { return std::round(value * 100) / 100; }

/// The value that this share of the times does not exceed.
Duration Quantile(std::vector<Duration> times, double share) {
  std::ranges::sort(times);
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(times.size())));
  return times[std::max<size_t>(rank, 1) - 1];
}

/// The resources of the server, if its process is known.
class ServerMeter {
 public:
  explicit ServerMeter(pid_t pid) : pid_(pid), before_(Now()) {}

  void AddTo(Json& row) const {
    if (pid_ == 0) return;
    row["server_cpu_seconds"] = Seconds(Now() - before_);
    if (const auto memory = load::MemoryOf(pid_)) row["server_rss_bytes"] = memory->peak_bytes;
  }
  Duration Now() const {
    if (pid_ == 0) return 0s;
    const auto used = load::CpuTime(pid_);
    return used ? *used : Duration(0s);
  }

 private:
  const pid_t pid_;
  const Duration before_;
};

/// The server that a fleet uses.
struct Place {
  std::string backend;
  Endpoint server{};
  EtcdConnector etcd{};
  pid_t pid = 0;                 ///< 0: unknown.
  std::shared_ptr<void> kept{};  ///< The servers that this program started.
};

Place AtServer(const BenchRendezvousFlags& flags) {
  auto server = std::make_shared<BenchServer>(OrExit(
      ReachServer(flags.server, flags.server_pid, flags.server_threads), "bench rendezvous"));
  return {.backend = flags.backend, .server = server->endpoint, .pid = server->pid, .kept = server};
}

#ifdef MUSTER_HAS_ETCD
Place InEtcd(const BenchRendezvousFlags& flags) {
  Place place{.backend = flags.backend, .pid = flags.server_pid};
  std::string endpoint = flags.server;
  if (endpoint.empty()) {
    const auto server = std::make_shared<EtcdServer>();
    server->Start();
    endpoint = server->endpoints().front();
    place.pid = server->pids().front();
    place.kept = server;
  }
  place.etcd = ConnectorTo(EtcdOptions::Parse(endpoint));
  return place;
}
#else
Place InEtcd(const BenchRendezvousFlags&) {
  throw std::invalid_argument("--backend etcd: this build has no etcd support");
}
#endif

// ----------------------------------------------------------------------------------------------
// muster and etcd: links, on one loop

/// Waits until the server has noticed that the nodes of the last round are gone; that work does not
/// belong to the next round.
void AwaitQuiet(const Endpoint& server, const std::string& run_id) {
  constexpr Duration kPatience = 10s;
  constexpr Duration kLook = 20ms;
  PosixClock clock;
  PosixDialer dialer(clock);
  const Instant until = clock.Now() + kPatience;
  StatusClient client = OrExit(StatusClient::Connect(dialer, server, until), "bench rendezvous");
  while (clock.Now() < until) {
    const auto runs = OrExit(client.Request(run_id, until), "bench rendezvous");
    if (runs.empty() || runs.front().phase == RunReport::Phase::kEmpty) return;
    clock.SleepUntil(clock.Now() + kLook);
  }
}

Json MeasureFleet(const Place& place, size_t count, const BenchRendezvousFlags& flags) {
  const ServerMeter meter(place.pid);
  const auto size = static_cast<int64_t>(count);
  const auto killed = static_cast<int64_t>(flags.kill);
  load::FleetOptions options{.server = place.server,
                             .etcd = place.etcd,
                             .nodes = count,
                             .kill = flags.kill,
                             .settings = {.min_nodes = size - killed,
                                          .max_nodes = size,
                                          .last_call = ToDuration(flags.last_call_seconds)}};
  double idle_cores = 0;
  if (flags.hold_seconds > 0) {
    options.hold = [&] {
      const Duration before = meter.Now();
      PosixClock clock;
      clock.SleepUntil(clock.Now() + ToDuration(flags.hold_seconds));
      idle_cores = Hundredths(static_cast<double>((meter.Now() - before).count()) /
                              (flags.hold_seconds * 1e9) * 100) /
                   100;
    };
  }
  std::vector<Duration> formed;
  std::vector<Duration> reformed;
  load::FleetReport last;
  bool ranks_ok = true;
  for (size_t round = 0; round < flags.rounds; ++round) {
    options.run_id = Concat("bench-", RunTag(), "-", count, "-", round);
    last = OrExit(load::RunFleet(options), Concat("bench rendezvous of ", count, " nodes"));
    if (!place.etcd) AwaitQuiet(place.server, options.run_id);
    formed.push_back(last.formed);
    reformed.push_back(last.reformed);
    ranks_ok = ranks_ok && last.ranks_ok;
  }
  Json row = {{"backend", place.backend},
              {"nodes", count},
              {"rounds", flags.rounds},
              {"seconds", Seconds(Quantile(formed, 0.5))},
              {"ranks_ok", ranks_ok},
              {"messages_per_node", Hundredths(last.messages_per_node)},
              {"bytes_per_node", Hundredths(last.bytes_per_node)},
              {"server_cpu_seconds", nullptr},
              {"server_rss_bytes", nullptr},
              {"reform_seconds", nullptr},
              {"reform_p99_seconds", nullptr}};
  meter.AddTo(row);
  if (flags.hold_seconds > 0 && place.pid != 0) row["server_idle_cores"] = idle_cores;
  if (flags.kill > 0) {
    row["killed"] = flags.kill;
    row["reform_seconds"] = Seconds(Quantile(reformed, 0.5));
    row["reform_p99_seconds"] = Seconds(Quantile(reformed, 0.99));
  }
  return row;
}

// ----------------------------------------------------------------------------------------------
// c10d: handlers, a thread each

using Handlers = std::vector<std::unique_ptr<DynamicRendezvousHandler>>;

Handlers MakeHandlers(const Endpoint& server, size_t count, const std::string& run_id) {
  Handlers handlers;
  const auto size = static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const RendezvousParameters parameters("c10d", server.ToString(), run_id, size, size,
                                          "127.0.0.1", {{"is_host", false}});
    auto [backend, store] = CreateC10dBackend(parameters);
    handlers.push_back(CreateDynamicHandler(std::move(store), std::move(backend), parameters));
  }
  return handlers;
}

// All nodes start at once: the last of their threads starts the clock, and the last node with a
// rank stops it.
Duration Meet(const Handlers& handlers, std::vector<int64_t>& ranks) {
  using SteadyClock = std::chrono::steady_clock;
  SteadyClock::time_point began;
  const auto start_clock = [&]() noexcept { began = SteadyClock::now(); };
  std::barrier start(static_cast<std::ptrdiff_t>(handlers.size()), start_clock);
  std::vector<std::thread> nodes;
  for (size_t i = 0; i < handlers.size(); ++i) {
    nodes.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        ranks[i] = handlers[i]->NextRendezvous().rank;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "muster: a node failed: %s\n", error.what());
      }
    });
  }
  for (std::thread& node : nodes) node.join();
  return SteadyClock::now() - began;
}

Json MeasureC10d(const Place& place, size_t count, const BenchRendezvousFlags& flags) {
  const ServerMeter meter(place.pid);
  std::vector<Duration> formed;
  RendezvousCost cost;
  bool ranks_ok = true;
  for (size_t round = 0; round < flags.rounds; ++round) {
    const Handlers handlers =
        MakeHandlers(place.server, count, Concat("bench-", RunTag(), "-", count, "-", round));
    std::vector<int64_t> ranks(count, -1);
    formed.push_back(Meet(handlers, ranks));
    std::ranges::sort(ranks);
    for (size_t i = 0; i < count; ++i) ranks_ok = ranks_ok && ranks[i] == static_cast<int64_t>(i);
    for (const auto& handler : handlers) {
      cost.reads += handler->cost().reads;
      cost.writes += handler->cost().writes;
      cost.lost += handler->cost().lost;
    }
  }
  const auto per_node = [&](int64_t total) {
    return Hundredths(static_cast<double>(total) / static_cast<double>(count * flags.rounds));
  };
  Json row = {{"backend", "c10d"},
              {"nodes", count},
              {"rounds", flags.rounds},
              {"seconds", Seconds(Quantile(formed, 0.5))},
              {"ranks_ok", ranks_ok},
              {"messages_per_node", per_node(cost.reads + cost.writes)},
              {"bytes_per_node", nullptr},
              {"server_cpu_seconds", nullptr},
              {"server_rss_bytes", nullptr},
              {"reform_seconds", nullptr},
              {"reform_p99_seconds", nullptr},
              {"writes_per_node", per_node(cost.writes)},
              {"lost_per_node", per_node(cost.lost)},
              {"reads_per_node", per_node(cost.reads)}};
  meter.AddTo(row);
  return row;
}

// ----------------------------------------------------------------------------------------------

void Print(const Json& row) {
  const auto figure = [&](const char* name, const char* format, const char* none) {
    if (!row.contains(name) || row[name].is_null()) {
      std::printf("%s", none);
    } else {
      std::printf(format, row[name].get<double>());
    }
  };
  std::printf("%-8s %7zu %9.4f %6s", row["backend"].get<std::string>().c_str(),
              row["nodes"].get<size_t>(), row["seconds"].get<double>(),
              row["ranks_ok"].get<bool>() ? "yes" : "NO");
  figure("messages_per_node", " %9.2f", "         -");
  figure("bytes_per_node", " %9.0f", "         -");
  figure("server_cpu_seconds", " %8.3f", "        -");
  if (row.contains("server_rss_bytes") && !row["server_rss_bytes"].is_null()) {
    std::printf(" %8.1f", row["server_rss_bytes"].get<double>() / (1 << 20));
  } else {
    std::printf("        -");
  }
  figure("server_idle_cores", " %8.4f", "        -");
  figure("reform_seconds", " %9.4f", "         -");
  figure("reform_p99_seconds", " %9.4f", "         -");
  std::printf("\n");
  std::fflush(stdout);
}

int BenchRendezvous(const BenchRendezvousFlags& flags) {
  const bool c10d = flags.backend == "c10d";
  const size_t most = *std::ranges::max_element(flags.nodes);
  const size_t fewest = *std::ranges::min_element(flags.nodes);
  if (flags.kill >= fewest) {
    throw std::invalid_argument(
        Concat("--kill ", flags.kill, " leaves none of ", fewest, " nodes"));
  }
  if (c10d && (flags.kill > 0 || flags.hold_seconds > 0)) {
    throw std::invalid_argument(
        "--kill and --hold need --backend muster or etcd: nodes of c10d are not notified when one "
        "of "
        "them "
        "dies");
  }
  OrExit(load::AllowConnections((flags.backend == "muster" ? 1 : 8) * most + 64),
         "bench rendezvous");
  const Place place = flags.backend == "etcd" ? InEtcd(flags) : AtServer(flags);
  if (!flags.json) {
    std::printf("%-8s %7s %9s %6s %9s %9s %8s %8s %8s %9s %9s\n", "backend", "nodes", "seconds",
                "ranks", "messages", "bytes", "CPU s", "MiB", "idle", "re-formed", "p99");
  }
  std::vector<Json> rows;
  bool right = true;
  for (const size_t count : flags.nodes) {
    rows.push_back(c10d ? MeasureC10d(place, count, flags) : MeasureFleet(place, count, flags));
    right = right && rows.back()["ranks_ok"].get<bool>();
    if (!flags.json) Print(rows.back());
  }
  if (flags.json) PrintJsonLines(rows);
  return right ? kOk : kFailed;
}

}  // namespace

void AddBenchRendezvous(CLI::App& bench, Run* run) {
  auto flags = std::make_shared<BenchRendezvousFlags>();
  CLI::App* rendezvous = bench.add_subcommand(
      "rendezvous", "Time for N nodes to agree, all starting at once, and what it costs.");
  rendezvous->footer(
      "muster: every node has a session over a connection of its own; connecting counts. With "
      "--kill, that many\n"
      "nodes then end without a message, and the time is measured until every surviving node has "
      "its place in "
      "the next round:\n"
      "it includes the grace for coming back (0.3 s) and --last-call.\n"
      "etcd: the same, but every node has a client of etcd of its own, with its lease and its "
      "watches; it takes the\n"
      "others 3 s, the lease here, to notice a node that ends without a message. --server takes "
      "etcd://HOST:PORT,...\n"
      "c10d: every node is a handler, made beforehand, with connections of its own; works with "
      "PyTorch's server, too.\n"
      "Each round is a new run with new nodes; seconds are the median. Columns: messages and bytes "
      "per node, both\n"
      "ways; CPU time and peak memory of the server; the share of a core that it takes while the "
      "round stands (--hold).\n"
      "\n"
      "Examples:\n"
      "  muster-lab bench rendezvous --nodes 4,1000,10000\n"
      "  muster-lab bench rendezvous --nodes 64 --kill 1 --rounds 50 --json\n"
      "  muster-lab bench rendezvous --backend etcd --nodes 64,256,1000\n"
      "  muster-lab bench rendezvous --backend c10d --nodes 64 --server HOST:29500");
  rendezvous->add_option("--backend", flags->backend, "muster, etcd or c10d")
      ->check(CLI::IsMember({"muster", "etcd", "c10d"}))
      ->capture_default_str();
  rendezvous->add_option("--server", flags->server,
                         "HOST:PORT of a running server; without it, one is started");
  rendezvous->add_option("--server-pid", flags->server_pid,
                         "Process of that server, whose CPU time and memory to report");
  rendezvous
      ->add_option("--server-threads", flags->server_threads,
                   "Threads of the server that is started; 0: cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  rendezvous->add_option("--nodes", flags->nodes, "How many nodes, one measurement for each")
      ->delimiter(',')
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  rendezvous->add_option("--rounds", flags->rounds, "Repetitions of each")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  rendezvous->add_option("--kill", flags->kill, "Nodes to end once the round is complete")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  rendezvous
      ->add_option("--last-call", flags->last_call_seconds,
                   "Seconds to wait for more once enough nodes are there (with --kill)")
      ->transform(SecondsFrom(0, kSecondsMax))
      ->capture_default_str();
  rendezvous
      ->add_option("--hold", flags->hold_seconds,
                   "Seconds to keep the round, to see what that costs the server")
      ->transform(SecondsFrom(0, kSecondsMax))
      ->capture_default_str();
  rendezvous->add_flag("--json", flags->json, "Print JSON");
  rendezvous->callback([flags, run] { *run = [flags] { return BenchRendezvous(*flags); }; });
}

}  // namespace muster::cli
