// Many histories on one server, each recorded and checked, and their results.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "histories/operation.h"
#include "histories/plan.h"

namespace muster::test {

struct CampaignOptions {
  uint16_t port = 0;  ///< Of the server, on loopback.
  uint64_t seed = 1;
  std::optional<uint64_t> replay{};  ///< The seed of one history, which is repeated every time.
  uint64_t histories = 100;
  int lanes = 4;  ///< Histories at a time: each is load for the others.
  int load = 1;   ///< Further connections that keep the server busy.
  PlanOptions plan{};
  uint64_t findings_max = 0;  ///< Stop after so many findings; 0: never.
};

/// A history that no order explains, or a call that failed without a reason.
struct Finding {
  Plan plan;
  std::vector<std::string> complaints{};
  History violation{};     ///< Shrunk; empty if there are only complaints.
  bool undecided = false;  ///< The checker stopped at its limit: `violation` is what it could not
                           ///< explain.
};

struct CampaignResult {
  uint64_t histories = 0;
  uint64_t faulty_histories = 0;
  uint64_t operations = 0;
  uint64_t unknown = 0;                        ///< Operations with unknown outcome.
  uint64_t visited = 0;                        ///< Steps of the checker.
  std::map<std::string, uint64_t> outcomes{};  ///< "add done", "pop timed out", ...
  std::vector<Finding> findings{};
};

/// Runs all of them. `found` is called with each finding, one call at a time.
CampaignResult RunCampaign(const CampaignOptions& options,
                           const std::function<void(const Finding&)>& found);

/// The finding as text: the plan, the complaints, the contradiction.
std::string Describe(const Finding& finding);

}  // namespace muster::test
