// What `muster-lab sim` prints: text for people, or JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/instrumented.h"
#include "base/time.h"
#include "sim/campaign.h"
#include "sim/world.h"

namespace muster::cli {

using Json = nlohmann::ordered_json;

struct SimFlags {
  std::optional<uint64_t> seed;
  uint64_t runs = 1;
  std::string driver;  ///< Empty: drawn, but never the launcher or etcd.
  std::optional<int64_t> nodes;
  std::string plant;  ///< Empty: none.
  unsigned jobs = 1;
  bool no_faults = false;
  bool twice = false;
  bool story = false;
  bool curve = false;
  bool side_by_side = false;
  bool failure_patterns = false;
  bool require_probes = false;
  bool hunt = false;
  bool json = false;
};

struct Played {
  sim::RunOutcome outcome;
  double real_seconds;
  uint64_t seed;       ///< The outcome of one world, or of the first of several that failed.
  int64_t worlds = 1;  ///< The outcome is that of all of them.
  double PerNode(const sim::Plan& plan, double total) const {
    return total / static_cast<double>(plan.nodes * worlds);
  }
};

double Seconds(Duration time);

/// The command that repeats the run of this seed.
std::string Replay(uint64_t seed, const SimFlags& flags);

/// The probes that these runs can hit; empty in builds without probes.
std::span<Probe> ProbesOf(const SimFlags& flags);

Json ToJson(const sim::Plan& plan, const Played& played, const SimFlags& flags);
Json ToJson(const sim::CampaignReport& report, uint64_t seed, const SimFlags& flags, double real);

void Print(const Json& json);
void Print(const sim::Plan& plan, const Played& played);
void Print(const sim::CampaignReport& report, const SimFlags& flags);
/// One row of a curve.
void PrintRow(const sim::Plan& plan, const Played& played, const SimFlags& flags);
/// Prints how often each probe was hit, or adds it to `json`. Returns those that were never hit.
std::vector<std::string> PrintProbes(const SimFlags& flags, Json& json);

}  // namespace muster::cli
