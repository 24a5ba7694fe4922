// What failures cost a job, by how long nodes that come back are held back (rejoin_window).
//
// The coordinator is the real one. Nodes, workers and the network are a few rules: a death is
// noticed after the grace, stopping and starting the workers takes fixed times, and a job makes
// progress only while all members of its round work.
#pragma once

#include <cstdint>
#include <span>

#include "base/time.h"

namespace muster::sim {

/// When nodes that come after a round has re-formed are announced to its members.
enum class HoldRule : uint8_t {
  kWindow,        ///< When the window is over.
  kUntilAllBack,  ///< As soon as as many wait as are missing, or then: the coordinator's rule.
};

struct FailurePattern {
  const char* name;
  const char* what;
  int64_t nodes;         ///< That fail.
  Duration staggered;    ///< They die at random within this time.
  Duration back_after;   ///< Each is back so long after its death,
  Duration back_within;  ///< or up to so much later.
  int64_t times = 1;     ///< How often each dies,
  Duration lives_for{};  ///< and how long it lives in between.
};
std::span<const FailurePattern> FailurePatterns();

/// The job that they happen to.
struct FailureCosts {
  static constexpr int64_t kNodes = 32;
  static constexpr int64_t kWorkersPerNode = 8;
  static constexpr Duration kHorizon = 600s;
  static constexpr Duration kNoticed = 300ms;  ///< After a death.
  static constexpr Duration kStop = 1s;        ///< From a notice to the next join.
  Duration restart = 20s;  ///< From a complete round to work beyond the last checkpoint.
  Duration window = 10s;
  HoldRule rule = HoldRule::kUntilAllBack;
};

struct FailureOutcome {
  double lost = 0;     ///< Worker-seconds within the horizon in which nothing was achieved.
  int64_t rounds = 0;  ///< That were formed, without the first.
};
FailureOutcome PlayFailures(const FailurePattern& pattern, const FailureCosts& costs,
                            uint64_t seed);

}  // namespace muster::sim
