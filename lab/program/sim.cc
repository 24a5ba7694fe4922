// `muster-lab sim`: the real machines, drivers and handlers in a simulated world, from one seed.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/command_line.h"
#include "program/commands.h"
#include "program/sim_report.h"
#include "sim/bugs.h"
#include "sim/campaign.h"
#include "sim/crash_report.h"
#include "sim/failure_patterns.h"
#include "sim/side_by_side.h"
#include "sim/world.h"

namespace muster::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr uint64_t kSeedMax = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kHuntRuns = 1'000;  // runs of each bug, without --runs
double SecondsSince(SteadyClock::time_point began) { return Seconds(SteadyClock::now() - began); }

sim::Constraints ConstraintsOf(const SimFlags& flags) {
  return {.driver = flags.driver.empty() ? std::nullopt : sim::DriverOf(flags.driver),
          .nodes = flags.nodes,
          .faults = !flags.no_faults};
}

/// An exception that leaves a run is a bug. It ends the program, which then prints the command that
/// repeats the run.
Played Play(const sim::Plan& plan, const SimFlags& flags) noexcept {
  const auto began = SteadyClock::now();
  sim::World world(plan);
  if (flags.story) {
    world.trace().on_line = [](Duration at, const std::string& line) {
      std::printf("%10.4f s  %s\n", Seconds(at), Printable(line, 400).c_str());
    };
  }
  sim::RunOutcome outcome = world.Run();
  return {std::move(outcome), SecondsSince(began), plan.seed};
}

int PlayOne(uint64_t seed, const SimFlags& flags) {
  // Flushed, so that the story is complete if the program dies in it.
  if (flags.story) std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const sim::Plan plan = sim::Draw(seed, ConstraintsOf(flags));
  if (!flags.json) std::printf("%s\n", plan.ToString().c_str());
  std::fflush(stdout);
  const Played played = Play(plan, flags);
  if (flags.json) {
    Print(ToJson(plan, played, flags));
  } else {
    Print(plan, played);
  }
  return played.outcome.violation.empty() ? kOk : kFailed;
}

/// As many worlds of that size at a time, with consecutive seeds; at the last seed there is, the
/// seeds continue backwards.
Played PlayBeside(const sim::Plan& plan, int64_t worlds, const SimFlags& flags) {
  const auto count = static_cast<uint64_t>(worlds);
  const uint64_t first = std::min(plan.seed, kSeedMax - count + 1);
  std::vector<sim::Plan> plans;
  for (uint64_t i = 0; i < count; ++i) plans.push_back(sim::Draw(first + i, ConstraintsOf(flags)));
  const sim::SideBySide played =
      sim::PlaySideBySide(plans, [&](const sim::Plan& one) { return Replay(one.seed, flags); });
  Played all{.outcome = {}, .real_seconds = played.real_seconds, .seed = first, .worlds = worlds};
  for (size_t i = 0; i < plans.size(); ++i) {
    const sim::RunOutcome& one = played.outcomes[i];
    all.outcome.hash ^= one.hash;
    all.outcome.virtual_time = std::max(all.outcome.virtual_time, one.virtual_time);
    all.outcome.healed_in = std::max(all.outcome.healed_in, one.healed_in);
    all.outcome.steps += one.steps;
    all.outcome.messages += one.messages;
    all.outcome.bytes += one.bytes;
    all.outcome.rounds += one.rounds;
    if (one.violation.empty() || !all.outcome.violation.empty()) continue;
    all.outcome.violation = one.violation;
    all.seed = plans[i].seed;
  }
  return all;
}

/// Smallest first: the peak of the memory is then that of the current size. (Side by side it is
/// about the same for all.)
int PlayCurve(uint64_t seed, SimFlags flags) {
  const int64_t most = flags.nodes.value_or(100'000);
  std::vector<sim::Plan> plans;
  for (const int64_t nodes : {1'000, 3'000, 10'000, 30'000, 100'000}) {
    flags.nodes = nodes;
    if (nodes < most) plans.push_back(sim::Draw(seed, ConstraintsOf(flags)));
  }
  flags.nodes = most;
  plans.push_back(sim::Draw(seed, ConstraintsOf(flags)));
  if (!flags.json) {
    for (const sim::Plan& plan : plans) std::printf("%s\n", plan.ToString().c_str());
    std::printf("%10s %10s %12s %12s %12s %12s %14s %12s %8s %7s\n", "nodes", "virtual s",
                "healed s", "real s", "us per node", "steps/node", "messages/node", "bytes/node",
                "MiB", "worlds");
  }
  std::fflush(stdout);
  int status = kOk;
  if (flags.side_by_side) mallopt(M_ARENA_MAX, 1);  // many worlds share a heap, like one world
  for (const sim::Plan& plan : plans) {
    flags.nodes = plan.nodes;
    sim::SetCrashReport(Replay(seed, flags));
    const Played played =
        flags.side_by_side ? PlayBeside(plan, most / plan.nodes, flags) : Play(plan, flags);
    if (!played.outcome.violation.empty()) status = kFailed;
    if (flags.json) {
      Print(ToJson(plan, played, flags));
    } else {
      PrintRow(plan, played, flags);
    }
    std::fflush(stdout);
  }
  return status;
}

/// The curve behind the default of rejoin_window.
int PlayFailurePatterns(uint64_t seed) {
  constexpr uint64_t kRepetitions = 50;
  using sim::FailureCosts;
  std::printf(
      "Worker-seconds lost of %.0f (%lld nodes of %lld workers, %.0f s), and rounds after the "
      "first; means of %llu.\n",
      Seconds(FailureCosts::kHorizon) *
          static_cast<double>(FailureCosts::kNodes * FailureCosts::kWorkersPerNode),
      static_cast<long long>(FailureCosts::kNodes),
      static_cast<long long>(FailureCosts::kWorkersPerNode), Seconds(FailureCosts::kHorizon),
      static_cast<unsigned long long>(kRepetitions));
  for (const sim::FailurePattern& pattern : sim::FailurePatterns())
    std::printf("  %-9s %s\n", pattern.name, pattern.what);
  for (const Duration restart : {5s, 20s, 60s}) {
    for (const sim::HoldRule rule : {sim::HoldRule::kWindow, sim::HoldRule::kUntilAllBack}) {
      std::printf("\nrestart %.0f s, %s\n%8s", Seconds(restart),
                  rule == sim::HoldRule::kWindow ? "held until the window is over"
                                                 : "held until all are back, or the window is over",
                  "window");
      for (const sim::FailurePattern& pattern : sim::FailurePatterns())
        std::printf(" %17s", pattern.name);
      std::printf(" %10s\n", "all");
      for (const Duration window : {0s, 1s, 2s, 5s, 10s, 15s, 20s, 30s, 60s}) {
        std::printf("%6.0f s", Seconds(window));
        double all = 0;
        for (const sim::FailurePattern& pattern : sim::FailurePatterns()) {
          double lost = 0, rounds = 0;
          for (uint64_t i = 0; i < kRepetitions; ++i) {
            const sim::FailureOutcome outcome = sim::PlayFailures(
                pattern, {.restart = restart, .window = window, .rule = rule}, seed + i);
            lost += outcome.lost / static_cast<double>(kRepetitions);
            rounds += static_cast<double>(outcome.rounds) / static_cast<double>(kRepetitions);
          }
          all += lost;
          std::printf(" %10.0f (%4.1f)", lost, rounds);
        }
        std::printf(" %10.0f\n", all);
      }
    }
  }
  return kOk;
}

sim::CampaignOptions CampaignOf(uint64_t seed, const SimFlags& flags) {
  return {.first_seed = seed,
          .runs = flags.runs,
          .constraints = ConstraintsOf(flags),
          .twice = flags.twice,
          .jobs = flags.jobs,
          .progress =
              [&flags](uint64_t done) {
                if (!flags.json && done % 50'000 == 0)
                  std::fprintf(stderr, "%llu runs\n", static_cast<unsigned long long>(done));
              },
          .replay = [&flags](uint64_t each) { return Replay(each, flags); }};
}

int PlayMany(uint64_t seed, const SimFlags& flags) {
  if (!flags.json)
    std::printf("seeds %llu to %llu%s, %u at a time\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(seed + flags.runs - 1),
                flags.twice ? ", each twice" : "", flags.jobs);
  std::fflush(stdout);
  const auto began = SteadyClock::now();
  const sim::CampaignReport report = sim::RunCampaign(CampaignOf(seed, flags));
  const double real = SecondsSince(began);
  Json json = ToJson(report, seed, flags, real);
  if (!flags.json) Print(report, flags);
  const std::vector<std::string> missing = PrintProbes(flags, json);
  if (flags.json) Print(json);
  std::fflush(stdout);
  if (!flags.json)
    std::fprintf(stderr, "%llu runs in %.1f s\n", static_cast<unsigned long long>(report.runs),
                 real);
  if (flags.require_probes && !missing.empty()) {
    std::fprintf(stderr, "muster-lab: %zu of %zu probes were never hit:\n", missing.size(),
                 ProbesOf(flags).size());
    for (const std::string& name : missing) std::fprintf(stderr, "  %s\n", name.c_str());
    return kFailed;
  }
  return report.findings.empty() && report.complaints.empty() ? kOk : kFailed;
}

/// Each planted bug must be found, by the violation that sim/bugs.cc names.
int Hunt(uint64_t seed, SimFlags flags) {
  std::printf("seed %llu: for each bug up to %llu runs\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(flags.runs));
  std::fflush(stdout);
  int status = kOk;
  for (const sim::PlantedBug& bug : sim::AllBugs()) {
    flags.plant = bug.name;
    flags.driver = sim::NameOf(bug.driver);
    const sim::Hunted hunted = sim::Hunt(bug, CampaignOf(seed, flags));
    std::printf("%-24s %-12s ", flags.plant.c_str(), flags.driver.c_str());
    const auto runs = static_cast<unsigned long long>(hunted.runs);
    const uint64_t its_seed = hunted.finding.plan.seed;
    if (!hunted.wrong.empty()) {
      status = kFailed;
      if (hunted.wrong == sim::kNotFound) {
        std::printf("NOT FOUND in %llu runs\n", runs);
      } else {
        std::printf("WRONG in %llu runs: %s\n", runs, hunted.wrong.substr(0, 200).c_str());
      }
    } else if (hunted.is_of_all) {
      std::printf("found in %llu runs: %s\n", runs, hunted.finding.what.c_str());
    } else {
      std::printf("found with seed %llu (run %llu): %s\n",
                  static_cast<unsigned long long>(its_seed),
                  static_cast<unsigned long long>(its_seed - seed + 1),
                  hunted.finding.what.substr(0, 120).c_str());
    }
    if (hunted.is_of_all) {
      std::printf("  muster-lab sim --seed %llu --runs %llu --driver %s --plant %s\n",
                  static_cast<unsigned long long>(seed), runs, flags.driver.c_str(),
                  flags.plant.c_str());
    } else if (!hunted.finding.what.empty()) {
      std::printf("  %s\n", Replay(its_seed, flags).c_str());
    }
    std::fflush(stdout);
  }
  return status;
}

using Given = std::pair<const char*, bool>;

void RefuseTogether(Given one, std::initializer_list<Given> others) {
  for (const auto& [name, is_given] : others) {
    if (one.second && is_given)
      throw std::invalid_argument(Concat(one.first, " and ", name, " exclude each other"));
  }
}

/// Options that would be ignored are refused.
void RefuseContradictions(const SimFlags& flags) {
  const Given runs{"--runs", flags.runs > 1};
  const Given twice{"--twice", flags.twice};
  const Given json{"--json", flags.json};
  const Given probes{"--require-probes", flags.require_probes};
  const Given story{"--story", flags.story};
  const Given hunt{"--hunt", flags.hunt};
  RefuseTogether(story, {json, hunt, runs, twice, probes});
  RefuseTogether({"--curve", flags.curve},
                 {story, hunt, runs, twice, probes, {"--jobs", flags.jobs > 1}});
  RefuseTogether({"--failure-patterns", flags.failure_patterns},
                 {story, hunt, runs, twice, probes, json, {"--curve", flags.curve}});
  RefuseTogether(
      hunt, {json, probes, {"--driver", !flags.driver.empty()}, {"--plant", !flags.plant.empty()}});
}

int Simulate(const SimFlags& flags) {
  RefuseContradictions(flags);
  if (flags.failure_patterns) return PlayFailurePatterns(flags.seed.value_or(1));
  if (flags.side_by_side && !flags.curve)
    throw std::invalid_argument("--side-by-side is a way to play a --curve");
  if (flags.side_by_side && flags.driver == sim::NameOf(sim::Driver::kLauncher))
    throw std::invalid_argument("--side-by-side: launchers do not take turns to the end");
  const uint64_t seed = flags.seed.value_or(std::random_device{}());
  if (flags.runs - 1 > kSeedMax - seed)
    throw std::invalid_argument(Concat("--seed ", seed, " and --runs ", flags.runs,
                                       " go beyond the last seed, ", kSeedMax));
  if (flags.require_probes && ProbesOf(flags).empty())
    throw std::runtime_error("--require-probes: this build has no probes (cmake --preset sim)");
  if (flags.hunt && !sim::Plant(Bug::kNone))
    throw std::runtime_error("no bugs can be planted in this build (cmake --preset sim)");
  if (!flags.plant.empty() &&
      !sim::Plant(std::ranges::find(sim::AllBugs(), flags.plant, &sim::PlantedBug::name)->bug))
    throw std::runtime_error("no bugs can be planted in this build (cmake --preset sim)");
  sim::InstallCrashReport();
  sim::SetCrashReport(Replay(seed, flags));  // until a thread has a run of its own
  if (flags.curve) return PlayCurve(seed, flags);
  if (flags.hunt) return Hunt(seed, flags);
  const bool is_campaign = flags.runs > 1 || flags.twice || flags.require_probes;
  return is_campaign ? PlayMany(seed, flags) : PlayOne(seed, flags);
}

// Checked before the flags, because an empty name is neither of them.
std::string CheckDriver(const std::string& name) {
  if (sim::DriverOf(name)) return "";
  return Concat("'", Printable(name), "' is none of coordinator, document, mixed, launcher, etcd");
}

std::string CheckBug(const std::string& name) {
  const auto bugs = sim::AllBugs();
  if (std::ranges::find(bugs, name, &sim::PlantedBug::name) != bugs.end()) return "";
  std::string all;
  for (const sim::PlantedBug& bug : bugs) all += Concat(all.empty() ? "" : ", ", bug.name);
  return Concat("'", Printable(name), "' is none of ", all);
}

}  // namespace

void AddSim(CLI::App& app, Run* run) {
  auto flags = std::make_shared<SimFlags>();
  CLI::App* sim =
      app.add_subcommand("sim", "Run the real server, nodes and wire code in a simulated world.");
  sim->footer(
      "The world has a virtual clock, a network that delays, cuts and resets, and processes that\n"
      "die, pause and come back. All of it follows from the seed: the same seed gives the same\n"
      "run, to the byte.\n"
      "\n"
      "Examples:\n"
      "  muster-lab sim --seed 57 --story             one run, with what happens in it\n"
      "  muster-lab sim --runs 100000 --jobs 2        a campaign\n"
      "  muster-lab sim --nodes 100000 --driver coordinator\n"
      "  muster-lab sim --curve                       the cost of a node, from 1,000 to 100,000");
  sim->add_option("--seed", flags->seed, "Seed of the run, or of the first one; default: drawn")
      ->transform(WholeNumber(0, kSeedMax));
  const CLI::Option* runs =
      sim->add_option("--runs", flags->runs,
                      "Number of runs, with consecutive seeds; of --hunt, the most for each bug\n"
                      "(default there: 1000)")
          ->transform(WholeNumber(1, 1'000'000'000))
          ->capture_default_str();
  sim->add_option("--driver", flags->driver,
                  "coordinator, document, mixed (the document, shared with nodes that behave as\n"
                  "PyTorch's), launcher (the coordinator, with launchers and their workers), or\n"
                  "etcd (a simulated cluster of it, and one of the nodes as the coordinator);\n"
                  "default: one of the first three, drawn")
      ->check(CheckDriver);
  sim->add_option("--nodes", flags->nodes, "Number of nodes; default: 2 to 7, drawn")
      ->transform(WholeNumber(2, 1'000'000));
  sim->add_option("--jobs", flags->jobs, "Runs at the same time")
      ->transform(WholeNumber(1, 1'024))
      ->capture_default_str();
  sim->add_flag("--no-faults", flags->no_faults, "Inject no faults");
  sim->add_flag("--twice", flags->twice, "Play every run twice, and compare the hashes");
  sim->add_flag("--story", flags->story, "Print what happens, line by line (of one run)");
  sim->add_flag("--curve", flags->curve,
                "Play one run each of 1,000 to 100,000 nodes; with --nodes, up to so many");
  sim->add_flag("--side-by-side", flags->side_by_side,
                "With --curve: play as many worlds of a smaller size at a time, with consecutive\n"
                "seeds, as have the nodes of the largest. Shows the cost of size without caches");
  sim->add_flag("--failure-patterns", flags->failure_patterns,
                "Print what failures of a few kinds cost a job, by rejoin_window");
  sim->add_flag("--require-probes", flags->require_probes,
                "Fail if a rare branch was never taken in all runs");
  sim->add_option("--plant", flags->plant, "Plant this bug")->check(CheckBug);
  sim->add_flag("--hunt", flags->hunt, "Plant each bug in turn, and find it");
  sim->add_flag("--json", flags->json,
                "Print JSON; real_* and peak_mib vary, everything else follows from the seed");
  sim->callback([flags, runs, run] {
    if (flags->hunt && runs->empty()) flags->runs = kHuntRuns;
    *run = [flags] { return Simulate(*flags); };
  });
}

}  // namespace muster::cli
