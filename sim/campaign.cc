#include "sim/campaign.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>
#include <utility>

#include "base/text.h"
#include "sim/last_words.h"

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
  figures.jobs += outcome.jobs;
  // Threads come in any order; the report must not.
  if (outcome.healed_in < figures.healed_in ||
      (outcome.healed_in == figures.healed_in && seed > figures.slowest))
    return;
  figures.healed_in = outcome.healed_in;
  figures.slowest = seed;
}

}  // namespace

std::string HashText(uint64_t hash) {
  constexpr size_t kDigits = 16;
  char digits[kDigits];
  const auto size =
      static_cast<size_t>(std::to_chars(digits, digits + kDigits, hash, 16).ptr - digits);
  return std::string(kDigits - size, '0').append(digits, size);
}

CampaignReport RunCampaign(const CampaignOptions& options) {
  CampaignReport report;
  std::mutex mutex;
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> stop = false;
  // What is thrown must not unwind to where nobody knows the seed any more.
  const auto work = [&]() noexcept {
    while (!stop) {
      const uint64_t index = next++;
      if (index >= options.runs) return;
      const uint64_t seed = options.first_seed + index;
      if (options.replay) SetLastWords(options.replay(seed));
      const Plan plan = Draw(seed, options.wishes);
      const RunOutcome outcome = World(plan).Run();
      std::string what = outcome.violation;
      const uint64_t again = options.twice ? World(plan).Run().hash : outcome.hash;
      if (again != outcome.hash)
        what += Concat(what.empty() ? "" : "; ",
                       "two runs of this seed differ: ", HashText(outcome.hash), " and ",
                       HashText(again));
      const std::lock_guard lock(mutex);
      if (options.twice && again == outcome.hash) ++report.same_twice;
      Count(outcome, plan.seed, report.drivers[static_cast<size_t>(plan.driver)]);
      if (!what.empty()) {
        report.findings.push_back({plan, std::move(what)});
        if (options.is_last && options.is_last(report.findings.back())) stop = true;
      }
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
