// The bugs that can be planted (base/instrumented.h), by name, and their violations.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/instrumented.h"
#include "sim/campaign.h"
#include "sim/plan.h"

namespace muster::sim {

/// A violation that a planted bug causes, by a part of its text.
struct Sign {
  std::string_view text;
  /// Empty if the check exists for bugs of this kind. Otherwise why this violation, of another
  /// check or of the time limit of a run, is right as well.
  std::string_view why{};
};

struct PlantedBug {
  Bug bug;
  std::string_view name;
  Driver driver;  ///< The runs that can show it.
  std::span<const Sign> signs;
};

std::span<const PlantedBug> AllBugs();
/// Plants the bug in all worlds. False in a build that is not instrumented.
bool Plant(Bug bug);

inline constexpr std::string_view kNotFound = "not found";
/// The result of the search for a planted bug.
struct Hunted {
  uint64_t runs = 0;
  Finding finding{};       ///< The run that shows the bug, or the one with a wrong violation.
  bool is_of_all = false;  ///< Only all runs together show it.
  std::string wrong{};     ///< Empty: the bug was found by the right violation.
};
/// Plants the bug and plays runs until its own check reports it. Violations that the table explains
/// may come first, and they find a bug that has no check of its own. Any other violation is wrong.
Hunted Hunt(const PlantedBug& bug, CampaignOptions options);

}  // namespace muster::sim
