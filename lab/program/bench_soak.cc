// `muster-lab bench soak`: thousands of nodes that come and go for minutes or hours. The server's
// memory must stay constant, and it must have exactly one descriptor for each connection.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/command_line.h"
#include "load/descriptor.h"
#include "load/flatness.h"
#include "load/process_meter.h"
#include "load/soak.h"
#include "os/posix/posix_clock.h"
#include "program/bench.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchSoakFlags {
  size_t nodes = 10'000;
  double minutes = 10;
  double churn_percent = 0.1;
  double sample_seconds = 5;
  double tolerance_percent = 5;
  double last_call_seconds = 2;
  int server_threads = 0;
  uint64_t seed = 1;
  bool json = false;
};

// An allocator keeps some pages; a leak over minutes is more than this.
constexpr double kSlackBytes = 2 << 20;
// A server notices the end of the last connections when it gets to them.
constexpr Duration kGoneWithin = 10s;

double MiB(uint64_t bytes) {
  return std::round(static_cast<double>(bytes) / (1 << 20) * 100) / 100;
}

/// The samples of the fleet and its server.
class Samples {
 public:
  Samples(pid_t server, bool print) : server_(server), print_(print) {
    descriptors_before_ = Descriptors();
    if (!print_) return;
    std::printf("%9s %10s %9s %8s %8s %8s %8s %9s %11s\n", "seconds", "connected", "in round",
                "round", "died", "left", "lost", "MiB", "descriptors");
  }

  void Add(const load::SoakState& state, bool calm) {
    const load::Memory memory = OrExit(load::MemoryOf(server_), "bench soak");
    const size_t descriptors = Descriptors();
    if (!calm) resident_.push_back(static_cast<double>(memory.resident_bytes));
    if (calm) unaccounted_ = Unaccounted(descriptors, state.connected);
    const double seconds = std::round(std::chrono::duration<double>(state.at).count() * 10) / 10;
    rows_.push_back({{"seconds", seconds},
                     {"calm", calm},
                     {"connected", state.connected},
                     {"in_round", state.in_round},
                     {"round", state.round},
                     {"died", state.died},
                     {"left", state.left},
                     {"given_up", state.given_up},
                     {"rss_bytes", memory.resident_bytes},
                     {"descriptors", descriptors}});
    if (!print_) return;
    std::printf("%9.1f %10zu %9zu %8lld %8llu %8llu %8llu %9.2f %11zu%s\n", seconds,
                state.connected, state.in_round, static_cast<long long>(state.round),
                static_cast<unsigned long long>(state.died),
                static_cast<unsigned long long>(state.left),
                static_cast<unsigned long long>(state.given_up), MiB(memory.resident_bytes),
                descriptors, calm ? "  all in one round" : "");
    std::fflush(stdout);
  }

  /// How many descriptors are left over once no node is connected.
  int64_t LeftOver() const {
    PosixClock clock;
    const Instant until = clock.Now() + kGoneWithin;
    while (clock.Now() < until && Unaccounted(Descriptors(), 0) != 0) {
      clock.SleepUntil(clock.Now() + 20ms);
    }
    return Unaccounted(Descriptors(), 0);
  }

  /// Of the server, while nodes came and went; nothing, if there were too few samples.
  std::optional<load::Flatness> memory() const { return load::FlatnessOf(resident_); }
  size_t count() const { return resident_.size(); }
  /// Descriptors without a connection, when all nodes were there, after the churn.
  int64_t unaccounted() const { return unaccounted_; }
  const std::vector<Json>& rows() const { return rows_; }

 private:
  size_t Descriptors() const { return OrExit(load::DescriptorsOf(server_), "bench soak"); }
  int64_t Unaccounted(size_t descriptors, size_t connections) const {
    return static_cast<int64_t>(descriptors) - static_cast<int64_t>(descriptors_before_) -
           static_cast<int64_t>(connections);
  }

  const pid_t server_;
  const bool print_;
  size_t descriptors_before_ = 0;
  int64_t unaccounted_ = 0;
  std::vector<double> resident_;
  std::vector<Json> rows_;
};

load::SoakOptions Options(const BenchSoakFlags& flags, const BenchServer& server,
                          Samples& samples) {
  const auto nodes = static_cast<int64_t>(flags.nodes);
  return {
      .server = server.endpoint,
      .run_id = Concat("soak-", RunTag()),
      .nodes = flags.nodes,
      .churn_per_second = flags.churn_percent / 100,
      .length = ToDuration(60 * flags.minutes),
      .sample_every = ToDuration(flags.sample_seconds),
      // Ten seconds of silence are allowed: the fleet lives on one thread, and shares the cores
      // with the server.
      .settings = {.min_nodes = std::max<int64_t>(1, nodes / 2),
                   .max_nodes = nodes,
                   .last_call = ToDuration(flags.last_call_seconds),
                   .keep_alive_interval = 2s,
                   .keep_alive_max_attempt = 5,
                   .forming = Forming{.rejoin_window = 0s}},  // every node that comes makes a round
      .seed = flags.seed,
      .sample = [&samples](const load::SoakState& state, bool calm) { samples.Add(state, calm); }};
}

/// The result.
struct Verdict {
  std::optional<load::Flatness> memory;
  bool flat = false;  ///< There were enough samples, and memory has not grown.
  int64_t unaccounted = 0;
  int64_t left_over = 0;
  load::SoakReport report{};
  std::vector<std::string> wrong{};  ///< Why it failed; empty: it passed.

  bool exact() const { return unaccounted == 0 && left_over == 0; }
  double growth_percent() const { return std::round(memory->growth() * 1e4) / 100; }
};

Verdict Judge(const BenchSoakFlags& flags, const Samples& samples, const load::SoakReport& report) {
  Verdict verdict{.memory = samples.memory(),
                  .unaccounted = samples.unaccounted(),
                  .left_over = samples.LeftOver(),
                  .report = report};
  std::vector<std::string>& wrong = verdict.wrong;
  if (const auto& memory = verdict.memory) {
    const double allowed = memory->earlier * (1 + flags.tolerance_percent / 100) + kSlackBytes;
    verdict.flat = memory->later <= allowed;
    if (!verdict.flat) wrong.push_back("the server's memory grows");
  } else {
    wrong.push_back(Concat("too short to show whether memory is flat: needs at least ",
                           load::kFlatnessSamplesMin, " samples, and has ", samples.count(),
                           " (--minutes, --sample)"));
  }
  if (!verdict.exact()) wrong.push_back("the server's descriptors are not those of connections");
  if (!report.ranks_ok) wrong.push_back("ranks are not each there once");
  if (report.last.round <= 0) {
    wrong.push_back("round 0 was the only one: no node went, so nothing was tested (--churn)");
  }
  return verdict;
}

void PrintJson(const BenchSoakFlags& flags, const Samples& samples, const Verdict& verdict) {
  const auto& [memory, flat, unaccounted, left_over, report, wrong] = verdict;
  Json line = {{"seed", flags.seed},
               {"nodes", flags.nodes},
               {"rounds", report.last.round + 1},
               {"came", report.last.came},
               {"died", report.last.died},
               {"left", report.last.left},
               {"given_up", report.last.given_up},
               {"ranks_ok", report.ranks_ok},
               {"rss_earlier_bytes", memory ? Json(memory->earlier) : Json()},
               {"rss_later_bytes", memory ? Json(memory->later) : Json()},
               {"rss_growth_percent", memory ? Json(verdict.growth_percent()) : Json()},
               {"descriptors_unaccounted", unaccounted},
               {"descriptors_left_over", left_over},
               {"clean", wrong.empty()},
               {"wrong", wrong},
               {"samples", samples.rows()}};
  std::printf("%s\n", line.dump().c_str());
}

void PrintText(const Verdict& verdict) {
  const load::SoakReport& report = verdict.report;
  if (const auto& memory = verdict.memory) {
    std::printf("memory       %s: %.2f MiB in the earlier half, %.2f in the later (%+.2f %%)\n",
                verdict.flat ? "flat" : "GROWS", MiB(static_cast<uint64_t>(memory->earlier)),
                MiB(static_cast<uint64_t>(memory->later)), verdict.growth_percent());
  } else {
    std::printf("memory       not measured\n");
  }
  std::printf("descriptors  %s: %lld more than connections, %lld when all had gone\n",
              verdict.exact() ? "exact" : "LEFT OVER", static_cast<long long>(verdict.unaccounted),
              static_cast<long long>(verdict.left_over));
  std::printf("ranks        %s, after %lld rounds; %llu nodes came, %llu died, %llu left\n",
              report.ranks_ok ? "right" : "WRONG", static_cast<long long>(report.last.round + 1),
              static_cast<unsigned long long>(report.last.came),
              static_cast<unsigned long long>(report.last.died),
              static_cast<unsigned long long>(report.last.left));
  for (const std::string& why : verdict.wrong) std::printf("wrong        %s\n", why.c_str());
  std::printf("soak: %s\n", verdict.wrong.empty() ? "clean" : "FAILED");
}

int BenchSoak(const BenchSoakFlags& flags) {
  // CLI11 accepts nan within every range.
  for (const double number : {flags.minutes, flags.churn_percent, flags.tolerance_percent}) {
    if (std::isnan(number))
      throw std::invalid_argument("--minutes, --churn, --tolerance: 'nan' is no number");
  }
  OrExit(load::AllowConnections(flags.nodes + 64), "bench soak");
  const BenchServer server = OrExit(ReachServer("", 0, flags.server_threads), "bench soak");
  if (!flags.json) {
    std::printf("soak: seed=%llu nodes=%zu minutes=%g churn=%g%%/s tolerance=%g%%\n",
                static_cast<unsigned long long>(flags.seed), flags.nodes, flags.minutes,
                flags.churn_percent, flags.tolerance_percent);
  }
  Samples samples(server.pid, !flags.json);
  const load::SoakReport report =
      OrExit(load::RunSoak(Options(flags, server, samples)), "bench soak");
  const Verdict verdict = Judge(flags, samples, report);
  if (flags.json) {
    PrintJson(flags, samples, verdict);
  } else {
    PrintText(verdict);
  }
  return verdict.wrong.empty() ? kOk : kFailed;
}

}  // namespace

void AddBenchSoak(CLI::App& bench, Run* run) {
  auto flags = std::make_shared<BenchSoakFlags>();
  CLI::App* soak = bench.add_subcommand(
      "soak", "Check that a server's memory and descriptors stay while nodes come and go.");
  soak->footer(
      "Starts a server and lets all nodes meet. Then nodes go and come back: half of them end\n"
      "without a leave, half leave; each comes back after one to three seconds, as another node.\n"
      "The others keep forming rounds. At the end all must be in one round again. Every few\n"
      "seconds the server's memory and descriptors are read.\n"
      "\n"
      "Status 0 if memory is flat (after a warm-up of a fifth, the lower quartile of the later\n"
      "half of the samples against that of the earlier, within --tolerance and 2 MiB), if there\n"
      "were exactly as many descriptors as connections with all nodes there, and none left when\n"
      "they had gone, if every node has a rank of its own, and if nodes went at all. Fewer than\n"
      "ten samples are a failure, too.\n"
      "\n"
      "Examples:\n"
      "  muster-lab bench soak --nodes 10000 --minutes 60\n"
      "  muster-lab bench soak --nodes 500 --minutes 0.2 --churn 5 --sample 0.5 --json");
  soak->add_option("--nodes", flags->nodes, "Number of nodes")
      ->transform(WholeNumber(2, 100'000))
      ->capture_default_str();
  soak->add_option("--minutes", flags->minutes, "Minutes for which nodes come and go")
      ->check(CLI::Range(0.0, 100'000.0))
      ->capture_default_str();
  soak->add_option("--churn", flags->churn_percent, "Percent of the nodes that go, each second")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  soak->add_option("--sample", flags->sample_seconds, "Seconds between two samples of the server")
      ->transform(SecondsFrom(0.01, kSecondsMax))
      ->capture_default_str();
  soak->add_option("--tolerance", flags->tolerance_percent, "Percent by which memory may grow")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  soak->add_option("--last-call", flags->last_call_seconds,
                   "Seconds to wait for more once half of the nodes are there")
      ->transform(SecondsFrom(0.001, kSecondsMax))
      ->capture_default_str();
  soak->add_option("--server-threads", flags->server_threads, "Threads of the server; 0: cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  soak->add_option("--seed", flags->seed, "Decides which nodes go, how, and for how long")
      ->transform(WholeNumber(0, UINT64_MAX))
      ->capture_default_str();
  soak->add_flag("--json", flags->json, "Print JSON");
  soak->callback([flags, run] { *run = [flags] { return BenchSoak(*flags); }; });
}

}  // namespace muster::cli
