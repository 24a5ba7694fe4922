// `muster sim`: the real machines, drivers and handlers in a simulated world, from one seed.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "sim/bugs.h"
#include "sim/campaign.h"
#include "sim/probes.h"
#include "sim/world.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;
using SteadyClock = std::chrono::steady_clock;

struct SimFlags {
  std::optional<uint64_t> seed;
  uint64_t runs = 1;
  std::string driver;
  std::optional<int64_t> nodes;
  std::string plant;
  unsigned jobs = 1;
  bool no_faults = false;
  bool twice = false;
  bool story = false;
  bool curve = false;
  bool require_probes = false;
  bool hunt = false;
  bool json = false;
};

double Seconds(Duration time) { return static_cast<double>(time.count()) / 1e9; }

double SecondsSince(SteadyClock::time_point began) { return Seconds(SteadyClock::now() - began); }

double PeakMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

sim::Wishes WishesOf(const SimFlags& flags) {
  return {.driver = flags.driver.empty() ? std::nullopt : sim::DriverOf(flags.driver),
          .nodes = flags.nodes,
          .faults = !flags.no_faults};
}

std::string Replay(const sim::Plan& plan, const SimFlags& flags) {
  return Concat("muster sim --seed ", plan.seed, " --driver ", sim::NameOf(plan.driver),
                flags.nodes ? Concat(" --nodes ", *flags.nodes) : "",
                flags.no_faults ? " --no-faults" : "",
                flags.plant.empty() ? "" : Concat(" --plant ", flags.plant), " --story");
}

Json ToJson(const sim::Plan& plan, const sim::RunOutcome& outcome, double real_seconds) {
  return {{"plan", plan.ToString()},
          {"nodes", plan.nodes},
          {"hash", Concat(outcome.hash)},
          {"violation", outcome.violation},
          {"virtual_seconds", Seconds(outcome.virtual_time)},
          {"healed_in_seconds", Seconds(outcome.healed_in)},
          {"real_seconds", real_seconds},
          {"real_us_per_node", real_seconds * 1e6 / static_cast<double>(plan.nodes)},
          {"steps", outcome.steps},
          {"messages", outcome.messages},
          {"bytes", outcome.bytes},
          {"rounds", outcome.rounds},
          {"peak_mib", PeakMiB()}};
}

int PlayOne(uint64_t seed, const SimFlags& flags) {
  const sim::Plan plan = sim::Draw(seed, WishesOf(flags));
  if (!flags.json) std::printf("%s\n", plan.ToString().c_str());
  std::fflush(stdout);
  const auto began = SteadyClock::now();
  sim::World world(plan);
  if (flags.story) {
    world.trace().on_line = [](Duration at, const std::string& line) {
      std::printf("%10.4f s  %s\n", Seconds(at), Printable(line, 400).c_str());
    };
  }
  const sim::RunOutcome outcome = world.Run();
  const double real = SecondsSince(began);
  if (flags.json) {
    std::printf("%s\n", ToJson(plan, outcome, real).dump().c_str());
  } else {
    std::printf(
        "%s\n%llu rounds in %.1f s of virtual time, together %.1f s after all was mended; "
        "%llu steps, %llu messages, %llu bytes (%.0f messages and %.0f bytes a node); "
        "%.2f s of real time, %.0f MiB; hash %llx\n",
        outcome.violation.empty() ? "all is well"
                                  : Concat("VIOLATION: ", outcome.violation).c_str(),
        static_cast<unsigned long long>(outcome.rounds), Seconds(outcome.virtual_time),
        Seconds(outcome.healed_in), static_cast<unsigned long long>(outcome.steps),
        static_cast<unsigned long long>(outcome.messages),
        static_cast<unsigned long long>(outcome.bytes),
        static_cast<double>(outcome.messages) / static_cast<double>(plan.nodes),
        static_cast<double>(outcome.bytes) / static_cast<double>(plan.nodes), real, PeakMiB(),
        static_cast<unsigned long long>(outcome.hash));
  }
  return outcome.violation.empty() ? kOk : kFailed;
}

/// Smallest first: the peak of the memory is then that of the size just played.
int PlayCurve(uint64_t seed, SimFlags flags) {
  const int64_t most = flags.nodes.value_or(100'000);
  if (!flags.json)
    std::printf("%10s %10s %12s %12s %12s %14s %12s %8s\n", "nodes", "virtual s", "healed s",
                "real s", "us per node", "messages/node", "bytes/node", "MiB");
  int status = kOk;
  for (const int64_t nodes : {1'000, 3'000, 10'000, 30'000, 100'000}) {
    if (nodes > most) break;
    flags.nodes = nodes;
    const sim::Plan plan = sim::Draw(seed, WishesOf(flags));
    const auto began = SteadyClock::now();
    const sim::RunOutcome outcome = sim::World(plan).Run();
    const double real = SecondsSince(began);
    if (!outcome.violation.empty()) status = kFailed;
    if (flags.json) {
      std::printf("%s\n", ToJson(plan, outcome, real).dump().c_str());
    } else {
      std::printf("%10lld %10.1f %12.1f %12.2f %12.1f %14.1f %12.0f %8.0f %s\n",
                  static_cast<long long>(nodes), Seconds(outcome.virtual_time),
                  Seconds(outcome.healed_in), real, real * 1e6 / static_cast<double>(nodes),
                  static_cast<double>(outcome.messages) / static_cast<double>(nodes),
                  static_cast<double>(outcome.bytes) / static_cast<double>(nodes), PeakMiB(),
                  outcome.violation.c_str());
    }
    std::fflush(stdout);
  }
  return status;
}

/// The probes that were never hit; how often the others were.
bool TellProbes(const SimFlags& flags, Json& json) {
  bool all = true;
  for (const Probe& probe : sim::AllProbes()) {
    const uint64_t hits = probe.hits.load();
    if (hits == 0) all = false;
    if (flags.json) {
      json["probes"][probe.name] = hits;
    } else {
      std::printf("  %12llu times  %s\n", static_cast<unsigned long long>(hits), probe.name);
    }
  }
  if (sim::AllProbes().empty() && !flags.json)
    std::printf("  this build has no probes (cmake --preset sim)\n");
  return all && !sim::AllProbes().empty();
}

void Tell(const sim::CampaignReport& report, const SimFlags& flags, double real) {
  std::printf("%llu runs in %.1f s\n", static_cast<unsigned long long>(report.runs), real);
  std::printf("%12s %10s %10s %12s %12s %14s %18s\n", "driver", "runs", "rounds", "steps",
              "messages", "virtual hours", "slowest to heal");
  for (const sim::Driver driver :
       {sim::Driver::kCoordinator, sim::Driver::kDocument, sim::Driver::kMixed}) {
    const sim::DriverFigures& figures = report.drivers[static_cast<size_t>(driver)];
    if (figures.runs == 0) continue;
    std::printf("%12s %10llu %10llu %12llu %12llu %14.1f %9.1f s (seed %llu)\n",
                sim::NameOf(driver), static_cast<unsigned long long>(figures.runs),
                static_cast<unsigned long long>(figures.rounds),
                static_cast<unsigned long long>(figures.steps),
                static_cast<unsigned long long>(figures.messages),
                Seconds(figures.virtual_time) / 3600, Seconds(figures.healed_in),
                static_cast<unsigned long long>(figures.slowest));
  }
  for (const sim::Finding& finding : report.findings) {
    std::printf("VIOLATION: %s\n  %s\n  %s\n", finding.what.c_str(),
                finding.plan.ToString().c_str(), Replay(finding.plan, flags).c_str());
  }
}

Json ToJson(const sim::CampaignReport& report, uint64_t seed, double real) {
  Json json = {{"seed", seed}, {"runs", report.runs}, {"real_seconds", real}};
  json["findings"] = Json::array();
  for (const sim::Finding& finding : report.findings)
    json["findings"].push_back({{"plan", finding.plan.ToString()}, {"what", finding.what}});
  for (const sim::Driver driver :
       {sim::Driver::kCoordinator, sim::Driver::kDocument, sim::Driver::kMixed}) {
    const sim::DriverFigures& figures = report.drivers[static_cast<size_t>(driver)];
    json["drivers"][sim::NameOf(driver)] = {{"runs", figures.runs},
                                            {"rounds", figures.rounds},
                                            {"messages", figures.messages},
                                            {"virtual_seconds", Seconds(figures.virtual_time)},
                                            {"healed_in_seconds_max", Seconds(figures.healed_in)}};
  }
  return json;
}

sim::CampaignReport Campaign(uint64_t seed, const SimFlags& flags, size_t findings_max) {
  return sim::RunCampaign({.first_seed = seed,
                           .runs = flags.runs,
                           .wishes = WishesOf(flags),
                           .twice = flags.twice,
                           .jobs = flags.jobs,
                           .findings_max = findings_max,
                           .progress = [&](uint64_t done) {
                             if (!flags.json && done % 50'000 == 0)
                               std::fprintf(stderr, "%llu runs\n",
                                            static_cast<unsigned long long>(done));
                           }});
}

int PlayMany(uint64_t seed, const SimFlags& flags) {
  if (!flags.json)
    std::printf("seeds %llu to %llu%s, %u at a time\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(seed + flags.runs - 1),
                flags.twice ? ", each twice" : "", flags.jobs);
  std::fflush(stdout);
  const auto began = SteadyClock::now();
  const sim::CampaignReport report = Campaign(seed, flags, 5);
  const double real = SecondsSince(began);
  Json json = ToJson(report, seed, real);
  if (!flags.json) Tell(report, flags, real);
  const bool probes = TellProbes(flags, json);
  if (flags.json) std::printf("%s\n", json.dump().c_str());
  if (flags.require_probes && !probes) {
    std::fprintf(stderr, "muster: a probe was never hit\n");
    return kFailed;
  }
  return report.findings.empty() ? kOk : kFailed;
}

/// Each planted bug must be found.
int Hunt(uint64_t seed, SimFlags flags) {
  int status = kOk;
  for (const sim::PlantedBug& bug : sim::AllBugs()) {
    if (!sim::Plant(bug.bug))
      throw std::runtime_error("no bugs can be planted in this build (cmake --preset sim)");
    flags.plant = bug.name;
    flags.driver = sim::NameOf(bug.driver);
    const sim::CampaignReport report = Campaign(seed, flags, 1);
    const bool found = !report.findings.empty();
    if (!found) status = kFailed;
    std::printf("%-22s %-12s %s\n", std::string(bug.name).c_str(), flags.driver.c_str(),
                found ? Concat("found in run ", report.findings[0].plan.seed - seed + 1, ": ",
                               report.findings[0].what.substr(0, 120))
                            .c_str()
                      : Concat("NOT FOUND in ", report.runs, " runs").c_str());
    std::fflush(stdout);
  }
  sim::Plant(Bug::kNone);
  return status;
}

int Simulate(const SimFlags& flags) {
  if (!flags.driver.empty() && !sim::DriverOf(flags.driver))
    throw std::invalid_argument(Concat("--driver is '", Printable(flags.driver),
                                       "', allowed: coordinator, document, mixed"));
  if (!flags.plant.empty()) {
    const auto bugs = sim::AllBugs();
    const auto bug = std::ranges::find(bugs, flags.plant, &sim::PlantedBug::name);
    if (bug == bugs.end())
      throw std::invalid_argument(
          Concat("--plant is '", Printable(flags.plant), "': no such bug (see --hunt)"));
    if (!sim::Plant(bug->bug))
      throw std::runtime_error("no bugs can be planted in this build (cmake --preset sim)");
  }
  const uint64_t seed = flags.seed.value_or(std::random_device{}());
  if (flags.curve) return PlayCurve(seed, flags);
  if (flags.hunt) return Hunt(seed, flags);
  return flags.runs == 1 && !flags.twice ? PlayOne(seed, flags) : PlayMany(seed, flags);
}

}  // namespace

void AddSim(CLI::App& app, Run* run) {
  auto flags = std::make_shared<SimFlags>();
  CLI::App* sim = app.add_subcommand(
      "sim",
      "Runs the real server, nodes and wire code in a simulated world: a virtual clock, a network\n"
      "that delays, cuts and resets, processes that die, pause and come back. All of it follows "
      "from\n"
      "the seed; the same seed gives the same run, to the byte.\n"
      "\n"
      "  muster sim --seed 8123 --story             one run, told\n"
      "  muster sim --runs 100000 --jobs 2          a campaign\n"
      "  muster sim --nodes 100000 --driver coordinator\n"
      "  muster sim --curve                         the cost of a node, from 1,000 to 100,000");
  sim->add_option("--seed", flags->seed, "Of the run, or of the first one; default: drawn");
  sim->add_option("--runs", flags->runs, "How many, with consecutive seeds")
      ->transform(WholeNumber(1, 1'000'000'000))
      ->capture_default_str();
  sim->add_option("--driver", flags->driver,
                  "coordinator, document, or mixed (the document, shared with nodes that behave\n"
                  "as PyTorch's); default: drawn");
  sim->add_option("--nodes", flags->nodes, "How many nodes; default: 2 to 7")
      ->transform(WholeNumber(2, 1'000'000));
  sim->add_option("--jobs", flags->jobs, "Runs at the same time")
      ->transform(WholeNumber(1, 1'024))
      ->capture_default_str();
  sim->add_flag("--no-faults", flags->no_faults, "Nothing goes wrong");
  sim->add_flag("--twice", flags->twice, "Every run twice: both must be the same");
  sim->add_flag("--story", flags->story, "Tell what happens (of one run)");
  sim->add_flag("--curve", flags->curve, "One run each of 1,000 to 100,000 (or --nodes) nodes");
  sim->add_flag("--require-probes", flags->require_probes,
                "Fail if a rare branch was never taken in all runs");
  sim->add_option("--plant", flags->plant, "With this bug in the code");
  sim->add_flag("--hunt", flags->hunt, "With each of the bugs that can be planted: find it");
  sim->add_flag("--json", flags->json, "Print JSON");
  sim->callback([flags, run] { *run = [flags] { return Simulate(*flags); }; });
}

}  // namespace muster::cli
