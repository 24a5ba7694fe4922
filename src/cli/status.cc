// `muster status`: the state of the runs of a server, or of all servers of this user on this
// machine, and which nodes each of them waits for.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/calendar.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "launch/rendezvous_thread.h"
#include "muster/error.h"
#include "muster/tcp_store.h"
#include "os/posix/local_servers.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "rendezvous/session/status_client.h"
#include "rendezvous/wait_report.h"
#ifdef MUSTER_HAS_ETCD
#include "etcd/grpc/grpc_etcd.h"
#include "etcd/status.h"
#include "muster/etcd_rendezvous.h"
#include "os/ports/system.h"
#endif

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;
using Role = MemberReport::Role;

struct StatusFlags {
  std::string server;  ///< Empty: all servers of this user on this machine.
  std::string run_id;
  double timeout_seconds = 5;
  bool watch = false;
  bool json = false;

  bool InEtcd() const { return server.find("://") != server.npos; }
};

// In the order of the enumerators.
constexpr const char* kPhases[] = {"forming", "last call", "complete", "closed", "empty"};

const char* Name(RunReport::Phase phase) {
  const auto index = static_cast<size_t>(phase);
  return index < std::size(kPhases) ? kPhases[index] : "unknown";  // a newer server may have others
}

double Seconds(Duration time) { return static_cast<double>(Milliseconds(time)) / 1e3; }

/// Which nodes the run waits for, and why: one sentence.
std::string Sentence(const RunReport& run) {
  const std::string late =
      run.waiting == 0
          ? ""
          : Concat("; ", run.waiting, run.waiting == 1 ? " node waits" : " nodes wait",
                   " for the next round",
                   run.held_left
                       ? Concat(", held back for up to ",
                                std::chrono::ceil<std::chrono::seconds>(*run.held_left).count(),
                                " s more: the round has just re-formed")
                       : "");
  if (run.phase == RunReport::Phase::kEmpty) return "no nodes: waiting for the first to come";
  if (run.phase == RunReport::Phase::kClosed)
    return Concat("closed", run.closed_by.empty() ? "" : Concat(" by ", OneLine(run.closed_by)));
  return ReportOn(run).ToString() + late;
}

Json ToJson(const MemberReport& member, bool in_etcd) {
  Json json = {{"node", member.node.ToString()}, {"addr", member.node.addr}};
  if (member.rank >= 0) json["rank"] = member.rank;
  if (!in_etcd) {
    json["last_heard_seconds"] = Seconds(member.silent_for);
    json["connected"] = member.connected;
    json["late"] = member.late;
  }
  if (!member.label.empty()) json["label"] = member.label;
  return json;
}

/// What the launchers of a run say about it, if it has launchers.
struct Running {
  int64_t since = 0;  ///< Microseconds since 1970.
  int64_t workers = 0;
  int64_t restarts = 0;

  std::string ToString() const {
    return Concat("running since ", UtcText(static_cast<WallTime>(since), 0), ", ", workers,
                  workers == 1 ? " worker, " : " workers, ", restarts,
                  restarts == 1 ? " restart" : " restarts");
  }
};

/// One query for each run: for few runs.
constexpr size_t kRunsAskedMax = 64;

std::optional<Running> RunningOf(const RunReport& run, const std::string& at,
                                 const StatusFlags& flags, std::unique_ptr<TcpStore>& store) {
  if (run.phase != RunReport::Phase::kComplete || flags.InEtcd()) return std::nullopt;
  try {
    const std::chrono::milliseconds time(static_cast<int64_t>(flags.timeout_seconds * 1e3));
    if (!store) {
      const Endpoint server = *ParseHostPort(at);
      store = std::make_unique<TcpStore>(server.host,
                                         TcpStoreOptions{.port = server.port, .timeout = time});
    }
    const std::string prefix = RoundPrefix(run.generation, run.round) + "/";
    if (!store->Check({prefix + kRunningKey})) return std::nullopt;
    const Json told = Json::parse(store->Get(prefix + kRunningKey));
    Running running{.since = told.at("since"), .workers = told.at("workers")};
    if (store->Check({prefix + kRestartsKey}))
      running.restarts = store->Add(prefix + kRestartsKey, 0);
    return running;
  } catch (const std::exception&) {
    return std::nullopt;  // the round is over, or a program has written what is no launcher's
  }
}

Json ToJson(const RunReport& run, const std::optional<Running>& running, bool in_etcd) {
  Json json = {{"run", run.id},
               {"round", run.round},
               {"generation", run.generation.ToString()},
               {"phase", Name(run.phase)},
               {"min_nodes", run.settings.min_nodes},
               {"max_nodes", run.settings.max_nodes},
               {"world_size", run.world_size}};
  if (in_etcd) json.erase("generation");
  if (run.last_call_left) json["last_call_left_seconds"] = Seconds(*run.last_call_left);
  if (run.held_left) json["held_left_seconds"] = Seconds(*run.held_left);
  if (!run.closed_by.empty()) json["closed_by"] = run.closed_by;
  if (running) {
    json["running_since"] = UtcText(static_cast<WallTime>(running->since), 0);
    json["workers"] = running->workers;
    json["restarts"] = running->restarts;
  }
  json["summary"] = Sentence(run);
  for (const auto& [name, role] : {std::pair{"participants", Role::kParticipant},
                                   {"waiting", Role::kWaiting},
                                   {"spares", Role::kSpare},
                                   {"idle", Role::kIdle}}) {
    json[name] = Json::array();
    for (const MemberReport& member : run.members) {
      if (member.role == role) json[name].push_back(ToJson(member, in_etcd));
    }
  }
  return json;
}

void Print(const RunReport& run, const std::optional<Running>& running, bool in_etcd) {
  std::printf("run '%s', round %lld, %s: %s\n", Printable(run.id).c_str(),
              static_cast<long long>(run.round),
              running ? running->ToString().c_str() : Name(run.phase), Sentence(run).c_str());
  for (const MemberReport& member : run.members) {
    const char* role = member.role == Role::kWaiting ? "waits"
                       : member.role == Role::kSpare ? "spare"
                       : member.role == Role::kIdle  ? "idle"
                                                     : "in";
    const std::string place = member.rank >= 0 ? Concat("rank ", member.rank) : role;
    if (in_etcd) {
      std::printf("  %-10s %s\n", place.c_str(), OneLine(member.node.ToString()).c_str());
      continue;
    }
    std::printf("  %-10s %-32s heard %.1f s ago%s%s%s\n", place.c_str(),
                OneLine(member.node.ToString()).c_str(), Seconds(member.silent_for),
                !member.connected ? ", not connected"
                : member.late     ? ", late"
                                  : "",
                member.label.empty() ? "" : ", label ", Printable(member.label).c_str());
  }
}

struct ServerReport {
  std::string server;
  std::vector<RunReport> runs;
};

/// Fetches the runs with each call.
using Fetcher = std::function<std::vector<ServerReport>()>;

#ifdef MUSTER_HAS_ETCD
Fetcher FetcherInEtcd(const StatusFlags& flags, const Clock& clock) {
  if (ShowsPassword(flags.server))
    throw std::invalid_argument(
        "--server: a password on a command line is visible to all users of the machine; set "
        "MUSTER_ETCD_PASSWORD instead");
  const EtcdOptions options = EtcdOptions::Parse(flags.server);
  const std::string prefix(options.prefix.empty() ? EtcdRendezvousOptions::kDefaultPrefix
                                                  : std::string_view(options.prefix));
  std::shared_ptr<EtcdCalls> calls =
      OrExit(EtcdCalls::Open(ConnectorTo(options), ThisProcess()), "status");
  return [calls, prefix, &flags, &clock] {
    const Instant deadline = clock.Now() + ToDuration(flags.timeout_seconds);
    EtcdStatus found = OrExit(StatusInEtcd(*calls, prefix, flags.run_id, deadline), "status");
    for (const std::string& why : found.ignored) PrintNotice(Concat("ignored: ", why));
    return std::vector<ServerReport>{{flags.server, std::move(found.runs)}};
  };
}
#else
Fetcher FetcherInEtcd(const StatusFlags&, const Clock&) {
  throw std::invalid_argument("--server: this build has no etcd support");
}
#endif

Result<std::vector<RunReport>> RunsAt(StatusClient& client, const std::string& run_id,
                                      Instant deadline) {
  std::vector<RunReport> heads{{.id = run_id}};
  if (run_id.empty()) {
    MUSTER_TRY(heads, client.Request("", deadline));
  }
  std::vector<RunReport> runs;
  for (const RunReport& head : heads) {
    MUSTER_TRY(std::vector<RunReport> found, client.Request(head.id, deadline));
    std::ranges::move(found, std::back_inserter(runs));
  }
  return runs;
}

Fetcher FetcherAtServer(const StatusFlags& flags, Clock& clock) {
  const Result<Endpoint> server = ParseHostPort(flags.server);
  if (!server) throw std::invalid_argument("--server " + server.error().message);
  PosixDialer dialer(clock);
  const auto client = std::make_shared<StatusClient>(OrExit(
      StatusClient::Connect(dialer, *server, clock.Now() + ToDuration(flags.timeout_seconds)),
      Concat("status of ", flags.server)));
  return [client, &flags, &clock] {
    const Instant deadline = clock.Now() + ToDuration(flags.timeout_seconds);
    return std::vector<ServerReport>{
        {flags.server, OrExit(RunsAt(*client, flags.run_id, deadline), "status")}};
  };
}

/// For the first answer of each. A server on this machine is faster, unless it is stopped.
constexpr Duration kLocalContactMax = 2s;

/// Without the stores of workers, which are servers without runs.
std::vector<ServerReport> LocalReports(const StatusFlags& flags, Clock& clock) {
  PosixDialer dialer(clock);
  std::vector<ServerReport> reports;
  for (const LocalServer& server : LocalServers()) {
    const Duration limit = ToDuration(flags.timeout_seconds);
    auto runs = [&]() -> Result<std::vector<RunReport>> {
      const Instant deadline = clock.Now() + std::min(limit, kLocalContactMax);
      MUSTER_TRY(StatusClient client, StatusClient::Connect(dialer, server.at, deadline));
      return RunsAt(client, flags.run_id, clock.Now() + limit);
    }();
    const std::string at = server.at.ToString();
    if (!runs) {
      // Any other failure: it has just ended.
      if (runs.error().code == Code::kTimeout) PrintNotice(Concat("no answer from ", at));
      if (runs.error().code == Code::kProtocol)
        PrintNotice(Concat("no status from ", at, ": ", runs.error().message));
    } else if (!runs->empty() || (server.action == "serve" && flags.run_id.empty())) {
      reports.push_back({at, *std::move(runs)});
    }
  }
  return reports;
}

constexpr const char* kNoLocalServer =
    "no muster server of this user has runs on this machine; --server HOST:PORT names another one";

void Show(const std::vector<ServerReport>& reports, const StatusFlags& flags) {
  Json servers = Json::array();
  for (const ServerReport& report : reports) {
    const std::vector<RunReport>& runs = report.runs;
    std::unique_ptr<TcpStore> store;
    const auto running_of = [&](const RunReport& run) {
      return runs.size() > kRunsAskedMax ? std::nullopt
                                         : RunningOf(run, report.server, flags, store);
    };
    if (flags.json) {
      Json json = {{"server", report.server}, {"runs", Json::array()}};
      for (const RunReport& run : runs)
        json["runs"].push_back(ToJson(run, running_of(run), flags.InEtcd()));
      servers.push_back(std::move(json));
      continue;
    }
    if (runs.empty()) std::printf("no runs at %s\n", report.server.c_str());
    if (!runs.empty() && flags.server.empty()) std::printf("server %s\n", report.server.c_str());
    for (const RunReport& run : runs) Print(run, running_of(run), flags.InEtcd());
  }
  if (flags.json) {
    PrintJson(flags.server.empty() ? Json{{"servers", servers}} : servers.front());
  } else if (reports.empty()) {
    std::printf("%s\n", kNoLocalServer);
  }
  std::fflush(stdout);
}

void RequireSome(const std::vector<ServerReport>& reports, const StatusFlags& flags) {
  const bool has_runs =
      std::ranges::any_of(reports, [](const ServerReport& report) { return !report.runs.empty(); });
  if (!flags.run_id.empty() && !has_runs) {
    throw std::runtime_error(
        Concat("no run '", Printable(flags.run_id), "' at ",
               flags.server.empty() ? "any server of this user on this machine" : flags.server,
               ": no node has come yet, or it is forgotten"));
  }
  if (reports.empty()) throw NetworkError(kNoLocalServer);
}

int ShowStatus(StatusFlags& flags) {
  const StopSignals signals;
  PosixClock clock;
  const Fetcher fetch = flags.server.empty() ? [&] { return LocalReports(flags, clock); }
                        : flags.InEtcd()     ? FetcherInEtcd(flags, clock)
                                             : FetcherAtServer(flags, clock);
  const bool clears = flags.watch && !flags.json && isatty(STDOUT_FILENO) == 1;
  do {
    // Before the notices of the servers that do not answer.
    if (clears) std::fputs("\x1b[H\x1b[2J", stdout);
    std::fflush(stdout);
    const std::vector<ServerReport> reports = fetch();
    if (!flags.watch) RequireSome(reports, flags);
    Show(reports, flags);
  } while (flags.watch && !signals.AwaitFor(std::chrono::seconds(1)));
  return kOk;
}

}  // namespace

void AddStatus(CLI::App& app, Run* run) {
  constexpr const char* kAbout =
      R"(Print the runs of a server: round, phase, the nodes with their rank and last message,
waiting nodes and spares; and in one sentence, which nodes each run waits for and why.

  muster status                                          your jobs and servers on this machine
  muster status --server HOST:29400                      all runs of a server
  muster status --server HOST:29400 --run RUN --watch    one run, every second
  muster status --server etcd://H1:2379,H2:2379          runs of the backend etcd)";
  auto [status, flags] = AddCommand(app, run, "status", kAbout, ShowStatus);
  status
      .add_option("--server", flags.server,
                  "HOST:PORT of `muster serve` or of the hosting node, or etcd://HOST:PORT,...;\n"
                  "without it: all that processes of this user serve on this machine")
      ->check([](const std::string& text) { return text.empty() ? "is empty" : ""; });
  status.add_option("--run", flags.run_id, "Only this run");
  AddSeconds(status, "--timeout", flags.timeout_seconds, 0.001, kSecondsMax,
             "Seconds to wait for an answer");
  status.add_flag("--watch", flags.watch, "Repeat every second, until a signal");
  status.add_flag("--json", flags.json, "Print JSON, one line each time");
}

}  // namespace muster::cli
