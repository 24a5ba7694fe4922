#include "program/sim_report.h"

#include <sys/resource.h>

#include <cstdio>

#include "base/text.h"
#include "sim/probes.h"

namespace muster::cli {
namespace {

constexpr sim::Driver kDrivers[] = {sim::Driver::kCoordinator, sim::Driver::kDocument,
                                    sim::Driver::kMixed, sim::Driver::kLauncher,
                                    sim::Driver::kEtcd};

double PeakMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

Json ToJson(const sim::JobFigures& jobs) {
  return {{"launchers", jobs.launchers},
          {"succeeded", jobs.succeeded},
          {"attempts", jobs.attempts},
          {"workers", jobs.workers},
          {"restarts", jobs.restarts}};
}

void PrintJobs(const sim::JobFigures& jobs) {
  std::printf(
      "%llu launchers, %llu of them ended with 0; %llu attempts with %llu workers, %llu failures "
      "counted\n",
      static_cast<unsigned long long>(jobs.launchers),
      static_cast<unsigned long long>(jobs.succeeded),
      static_cast<unsigned long long>(jobs.attempts), static_cast<unsigned long long>(jobs.workers),
      static_cast<unsigned long long>(jobs.restarts));
}

}  // namespace

std::span<Probe> ProbesOf(const SimFlags& flags) {
  if (flags.driver == sim::NameOf(sim::Driver::kLauncher)) return sim::LaunchProbes();
  if (flags.driver == sim::NameOf(sim::Driver::kEtcd)) return sim::EtcdProbes();
  return sim::AllProbes();
}

double Seconds(Duration time) { return static_cast<double>(time.count()) / 1e9; }

/// Constraints that are not given follow from the seed again.
std::string Replay(uint64_t seed, const SimFlags& flags) {
  return Concat("muster-lab sim --seed ", seed,
                flags.driver.empty() ? "" : Concat(" --driver ", flags.driver),
                flags.nodes ? Concat(" --nodes ", *flags.nodes) : "",
                flags.no_faults ? " --no-faults" : "",
                flags.plant.empty() ? "" : Concat(" --plant ", flags.plant), " --story");
}

void Print(const Json& json) {
  // It may quote nodes, and need not be valid text.
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

Json ToJson(const sim::Plan& plan, const Played& played, const SimFlags& flags) {
  const sim::RunOutcome& outcome = played.outcome;
  Json json = {{"seed", played.seed},
               {"plan", plan.ToString()},
               {"replay", Replay(played.seed, flags)},
               {"nodes", plan.nodes},
               {"hash", sim::HashText(outcome.hash)},
               {"violation", outcome.violation},
               {"virtual_seconds", Seconds(outcome.virtual_time)},
               {"healed_in_seconds", Seconds(outcome.healed_in)},
               {"steps", outcome.steps},
               {"messages", outcome.messages},
               {"bytes", outcome.bytes},
               {"rounds", outcome.rounds},
               {"closed", outcome.closed},
               {"exempt", outcome.exempt},
               {"real_seconds", played.real_seconds},
               {"real_us_per_node", played.PerNode(plan, played.real_seconds * 1e6)},
               {"worlds", played.worlds},
               {"peak_mib", PeakMiB()}};
  if (plan.driver == sim::Driver::kLauncher) json["jobs"] = ToJson(outcome.jobs);
  return json;
}

/// What follows from the seed goes to stdout; what depends on the machine goes to stderr.
void Print(const sim::Plan& plan, const Played& played) {
  const sim::RunOutcome& outcome = played.outcome;
  const auto nodes = static_cast<double>(plan.nodes);
  std::printf(
      "%s\n%llu rounds in %.1f s of virtual time, %s %.1f s after all was mended; "
      "%llu steps, %llu messages, %llu bytes (%.0f messages and %.0f bytes a node); hash %s\n",
      outcome.violation.empty() ? "all is well" : Concat("VIOLATION: ", outcome.violation).c_str(),
      static_cast<unsigned long long>(outcome.rounds), Seconds(outcome.virtual_time),
      plan.driver == sim::Driver::kLauncher ? "all ended"
      : outcome.exempt                      ? "exempt (a PyTorch node was left behind),"
      : outcome.closed                      ? "closed, and all ended,"
                                            : "together",
      Seconds(outcome.healed_in), static_cast<unsigned long long>(outcome.steps),
      static_cast<unsigned long long>(outcome.messages),
      static_cast<unsigned long long>(outcome.bytes), static_cast<double>(outcome.messages) / nodes,
      static_cast<double>(outcome.bytes) / nodes, sim::HashText(outcome.hash).c_str());
  if (plan.driver == sim::Driver::kLauncher) PrintJobs(outcome.jobs);
  std::fflush(stdout);
  std::fprintf(stderr, "%.2f s of real time, %.0f MiB\n", played.real_seconds, PeakMiB());
}

void PrintRow(const sim::Plan& plan, const Played& played, const SimFlags& flags) {
  const sim::RunOutcome& outcome = played.outcome;
  const auto per_node = [&](auto total) {
    return played.PerNode(plan, static_cast<double>(total));
  };
  std::printf("%10lld %10.1f %12.1f %12.2f %12.1f %12.1f %14.1f %12.0f %8.0f %7lld\n",
              static_cast<long long>(plan.nodes), Seconds(outcome.virtual_time),
              Seconds(outcome.healed_in), played.real_seconds, per_node(played.real_seconds * 1e6),
              per_node(outcome.steps), per_node(outcome.messages), per_node(outcome.bytes),
              PeakMiB(), static_cast<long long>(played.worlds));
  if (!outcome.violation.empty())
    std::printf("VIOLATION: %s\n  %s\n", outcome.violation.c_str(),
                Replay(played.seed, flags).c_str());
}

std::vector<std::string> PrintProbes(const SimFlags& flags, Json& json) {
  std::vector<std::string> missing;
  for (const Probe& probe : ProbesOf(flags)) {
    const uint64_t hits = probe.hits.load();
    if (hits == 0) missing.emplace_back(probe.name);
    if (flags.json) {
      json["probes"][probe.name] = hits;
    } else {
      std::printf("  %12llu times  %s\n", static_cast<unsigned long long>(hits), probe.name);
    }
  }
  if (ProbesOf(flags).empty() && !flags.json)
    std::printf("  this build has no probes (cmake --preset sim)\n");
  return missing;
}

void Print(const sim::CampaignReport& report, const SimFlags& flags) {
  if (flags.twice)
    std::printf("%llu of %llu runs gave equal hashes\n",
                static_cast<unsigned long long>(report.same_twice),
                static_cast<unsigned long long>(report.runs));
  std::printf("%12s %10s %10s %12s %12s %14s %20s %18s\n", "driver", "runs", "rounds", "steps",
              "messages", "virtual hours", "healed p50/p99", "slowest to heal");
  for (const sim::Driver driver : kDrivers) {
    const sim::DriverFigures& figures = report.drivers[static_cast<size_t>(driver)];
    if (figures.runs == 0) continue;
    std::printf("%12s %10llu %10llu %12llu %12llu %14.1f %7.1f s / %6.1f s %9.1f s (seed %llu)\n",
                sim::NameOf(driver), static_cast<unsigned long long>(figures.runs),
                static_cast<unsigned long long>(figures.rounds),
                static_cast<unsigned long long>(figures.steps),
                static_cast<unsigned long long>(figures.messages),
                Seconds(figures.virtual_time) / 3600, Seconds(figures.HealedWithin(50)),
                Seconds(figures.HealedWithin(99)), Seconds(figures.healed_in),
                static_cast<unsigned long long>(figures.slowest));
  }
  const sim::DriverFigures& launchers = report.drivers[static_cast<size_t>(sim::Driver::kLauncher)];
  if (launchers.runs > 0) PrintJobs(launchers.jobs);
  const sim::DriverFigures& mixed = report.drivers[static_cast<size_t>(sim::Driver::kMixed)];
  if (mixed.runs > 0)
    std::printf("%llu of %llu mixed runs were exempt: a PyTorch node was left behind%s\n",
                static_cast<unsigned long long>(mixed.exempt),
                static_cast<unsigned long long>(mixed.runs),
                mixed.exempt > 0 ? Concat(" (seed ", mixed.first_exempt, ")").c_str() : "");
  for (const std::string& complaint : report.complaints)
    std::printf("VIOLATION: %s\n", complaint.c_str());
  for (const sim::Finding& finding : report.findings) {
    std::printf("VIOLATION: %s\n  %s\n  %s\n", finding.what.c_str(),
                finding.plan.ToString().c_str(), Replay(finding.plan.seed, flags).c_str());
  }
}

Json ToJson(const sim::CampaignReport& report, uint64_t seed, const SimFlags& flags, double real) {
  Json json = {{"seed", seed}, {"runs", report.runs}, {"real_seconds", real}};
  if (flags.twice) json["equal_hashes"] = report.same_twice;
  json["complaints"] = report.complaints;
  json["findings"] = Json::array();
  for (const sim::Finding& finding : report.findings)
    json["findings"].push_back({{"seed", finding.plan.seed},
                                {"plan", finding.plan.ToString()},
                                {"what", finding.what},
                                {"replay", Replay(finding.plan.seed, flags)}});
  for (const sim::Driver driver : kDrivers) {
    const sim::DriverFigures& figures = report.drivers[static_cast<size_t>(driver)];
    json["drivers"][sim::NameOf(driver)] = {
        {"runs", figures.runs},
        {"rounds", figures.rounds},
        {"messages", figures.messages},
        {"virtual_seconds", Seconds(figures.virtual_time)},
        {"healed_in_seconds_p50", Seconds(figures.HealedWithin(50))},
        {"healed_in_seconds_p99", Seconds(figures.HealedWithin(99))},
        {"healed_in_seconds_max", Seconds(figures.healed_in)}};
    if (driver == sim::Driver::kMixed)
      json["drivers"][sim::NameOf(driver)]["exempt"] = figures.exempt;
    if (driver == sim::Driver::kLauncher)
      json["drivers"][sim::NameOf(driver)]["jobs"] = ToJson(figures.jobs);
  }
  return json;
}

}  // namespace muster::cli
