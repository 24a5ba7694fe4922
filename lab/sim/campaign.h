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
  bool twice = false;  ///< Every run a second time: it must be the same to the byte.
  unsigned jobs = 1;
  size_t findings_max = 5;  ///< Then it stops.
  /// And after this finding. Called on any thread, one at a time.
  std::function<bool(const Finding&)> is_last{};
  /// Called from time to time, on any thread, one at a time.
  std::function<void(uint64_t done)> progress{};
  /// The command that repeats the run of this seed: the last words (sim/crash_report.h) of a thread
  /// that dies in it. Called on that thread, before the run.
  std::function<std::string(uint64_t seed)> replay{};
};

struct DriverFigures {
  uint64_t runs = 0;
  uint64_t rounds = 0;
  uint64_t steps = 0;
  uint64_t messages = 0;
  uint64_t bytes = 0;
  Duration virtual_time{};
  Duration healed_in{};  ///< The slowest.
  uint64_t slowest = 0;  ///< Its seed; the lowest of several.
  /// How many runs healed in so many milliseconds.
  std::map<int64_t, uint64_t> healed_ms{};
  /// Of mixed runs: not all came together, for one of PyTorch's nodes was left behind.
  uint64_t excused = 0;
  uint64_t first_excused = 0;  ///< The lowest seed of them.
  JobFigures jobs{};           ///< Of launchers.

  /// Within this, so many of a hundred runs healed.
  Duration HealedWithin(uint64_t percent) const;
};

struct CampaignReport {
  uint64_t runs = 0;
  uint64_t same_twice = 0;  ///< With `twice`: those with two equal hashes.
  std::array<DriverFigures, kDriverCount> drivers{};  ///< By Driver.
  std::vector<Finding> findings{};                    ///< By seed.
  std::vector<std::string> complaints{};              ///< About all runs together: see Judge().
};

/// The percentiles are meaningful from so many runs of a driver on.
inline constexpr uint64_t kRunsToJudge = 1'000;
/// Within this, 99 of 100 runs of the driver heal.
Duration HealBoundOf99(Driver driver);
/// Of so many mixed runs one may end with a node of PyTorch's that was left behind, and a few more,
/// for they are rare and scatter. Measured: six in 38,000.
inline constexpr uint64_t kMixedRunsPerExcuse = 1'000;
inline constexpr uint64_t kExcusesBesides = 4;
/// What is wrong with the runs of each driver that were at least kRunsToJudge, taken together.
std::vector<std::string> Judge(const CampaignReport& report);

/// How a hash is written, wherever it is: sixteen hexadecimal digits.
std::string HashText(uint64_t hash);

/// An exception that leaves a run is a bug, and ends the program.
CampaignReport RunCampaign(const CampaignOptions& options);

}  // namespace muster::sim
