#include "sim/campaign.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/text.h"

namespace muster::sim {

namespace {

constexpr uint64_t kProgressEvery = 1'000;

void Count(const RunOutcome& outcome, uint64_t seed, DriverFigures& figures) {
  ++figures.runs;
  figures.rounds += outcome.rounds;
  figures.steps += outcome.steps;
  figures.messages += outcome.messages;
  figures.bytes += outcome.bytes;
  figures.virtual_time += outcome.virtual_time;
  if (outcome.healed_in <= figures.healed_in) return;
  figures.healed_in = outcome.healed_in;
  figures.slowest = seed;
}

}  // namespace

CampaignReport RunCampaign(const CampaignOptions& options) {
  CampaignReport report;
  std::mutex mutex;
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> stop = false;
  const auto work = [&] {
    while (!stop) {
      const uint64_t index = next++;
      if (index >= options.runs) return;
      const Plan plan = Draw(options.first_seed + index, options.wishes);
      const RunOutcome outcome = World(plan).Run();
      std::string what = outcome.violation;
      if (options.twice && what.empty()) {
        const uint64_t again = World(plan).Run().hash;
        if (again != outcome.hash)
          what = Concat("two runs of this seed differ: ", outcome.hash, " and ", again);
      }
      const std::lock_guard lock(mutex);
      Count(outcome, plan.seed, report.drivers[static_cast<size_t>(plan.driver)]);
      if (!what.empty()) report.findings.push_back({plan, std::move(what)});
      if (report.findings.size() >= options.findings_max) stop = true;
      if (++report.runs % kProgressEvery == 0 && options.progress) options.progress(report.runs);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < options.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(report.findings, {}, [](const Finding& finding) { return finding.plan.seed; });
  return report;
}

}  // namespace muster::sim
