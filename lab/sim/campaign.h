// Many runs, one seed each, on several threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/plan.h"
#include "sim/world.h"

namespace muster::sim {

struct Finding {
  Plan plan;
  std::string what;
};

struct CampaignOptions {
  uint64_t first_seed = 1;
  uint64_t runs = 1'000;
  Constraints constraints{};
  bool twice = false;  ///< Plays every run a second time: it must be the same to the byte.
  unsigned jobs = 1;
  size_t findings_max = 5;  ///< The campaign stops after so many.
  /// The campaign also stops after this finding. Called on any thread, one at a time.
  std::function<bool(const Finding&)> is_last{};
  /// Called regularly, on any thread, one at a time.
  std::function<void(uint64_t done)> progress{};
  /// The command that repeats the run of this seed: what a dying thread prints
  /// (sim/crash_report.h). Called on that thread, before the run.
  std::function<std::string(uint64_t seed)> replay{};
};

struct DriverFigures {
  uint64_t runs = 0;
  uint64_t rounds = 0;
  uint64_t steps = 0;
  uint64_t messages = 0;
  uint64_t bytes = 0;
  Duration virtual_time{};
  Duration healed_in{};  ///< The slowest run.
  uint64_t slowest = 0;  ///< Its seed; the lowest one of several.
  /// How many runs healed in so many milliseconds.
  std::map<int64_t, uint64_t> healed_ms{};
  /// Mixed runs that did not come together because one of PyTorch's nodes was left behind.
  uint64_t exempt = 0;
  uint64_t first_exempt = 0;  ///< Their lowest seed.
  JobFigures jobs{};          ///< Of launchers.

  /// The time within which so many of a hundred runs healed.
  Duration HealedWithin(uint64_t percent) const;
};

struct CampaignReport {
  uint64_t runs = 0;
  uint64_t same_twice = 0;                            ///< With `twice`: runs with two equal hashes.
  std::array<DriverFigures, kDriverCount> drivers{};  ///< By Driver.
  std::vector<Finding> findings{};                    ///< By seed.
  std::vector<std::string> complaints{};              ///< About all runs: see Judge().
};

/// The number of runs of a driver from which the percentiles are meaningful.
inline constexpr uint64_t kRunsToJudge = 1'000;
/// Within this, 99 of 100 runs of the driver heal.
Duration HealBoundOf99(Driver driver);
/// One of so many mixed runs may end with a PyTorch node that was left behind; a few more are
/// allowed, because they are rare and vary. Measured: six in 38,000.
inline constexpr uint64_t kMixedRunsPerExemption = 1'000;
inline constexpr uint64_t kExcusesBesides = 4;
/// What is wrong with all runs of a driver together, for drivers with at least kRunsToJudge runs.
std::vector<std::string> Judge(const CampaignReport& report);

/// The text of a hash, everywhere: sixteen hexadecimal digits.
std::string HashText(uint64_t hash);

/// An exception that leaves a run is a bug, and ends the program.
CampaignReport RunCampaign(const CampaignOptions& options);

}  // namespace muster::sim
