// What builds with MUSTER_INSTRUMENTED contain for tests: bugs that can be planted, and probes that
// record whether tests ever took a rare branch. In builds of users these compile to nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace muster {

/// A test that cannot find such a bug proves nothing. It plants one at a time.
enum class Bug : uint8_t {
  kNone,
  kFencingIgnored,     ///< A message of an earlier connection, or of an earlier round, is executed.
  kLastCallOffByOne,   ///< A round is completed with one node too few.
  kExpiryOnWallClock,  ///< A node whose wall clock is behind is declared lost.
  kStalePushAccepted,  ///< A push about the previous round answers the call for the next.
  kRankByArrival,      ///< Ranks are assigned in order of arrival.
  kDoubleCompletion,   ///< A node that joins a complete round is admitted.
  kClosedForgotten,    ///< A heartbeat reopens a closed run.
  kRoundNotCounted,    ///< The next round has the number of the previous one.
  kGraceForever,       ///< A node whose connection broke is never declared lost.
  kSpareForgotten,     ///< A free place is not given to a waiting node.
  kWriteUnfenced,      ///< The document is written without comparing it.
  kOneTooMany,         ///< A round has one node more than allowed.
  kStaleAddress,       ///< Workers are sent to rank 0 of an earlier round.
  kPlaceLostUntold,    ///< An evicted node is not notified.
  kLossUntold,         ///< The other members are not notified of a loss.
  kStaleKeepAlive,     ///< A message of an earlier connection counts as a keep-alive.
  kMembershipCosts,    ///< A launcher counts a restart after a change of membership.
  kFailureUncounted,   ///< A launcher does not count a restart after a failure of its own workers.
  kBlameIgnored,       ///< Each node counts the failure of another node as its own.
  kLastUnswept,        ///< Descendants of workers survive into the next round.
  kLastUnended,        ///< Workers survive into the next round.
  kNeverKilled,        ///< A worker that ignores SIGTERM is never killed.
  kBarrierUnawaited,   ///< A node that is done does not wait at the exit barrier.
  kRanksUnexchanged,   ///< Each node assumes that all have as many workers as itself.
  kUnfencedLeader,     ///< A leader in etcd still writes after another leader has been elected.
  kUncommittedRound,   ///< A leader announces a round before it is written.
  kAssignmentOfOldRound,  ///< A node accepts its last assignment as the answer to its next join.
  kLostWatchEvent,        ///< A change in etcd is not delivered.
  kGenerationReused,      ///< Two runs of one name have the same keys.
  kWaitingStale,          ///< Members are not notified when no node waits any more.
  kReformAsFirst,         ///< A round that re-forms waits for the whole last call.
  kSlowToMiss,            ///< A silent node is declared lost only after five times the limit.
  // The two halves of kUnfencedLeader. In most simulated runs each one hides the other, so tests of
  // the outbox plant them.
  kFenceIgnored,      ///< A leader in etcd does not check its fencing token.
  kTurnIgnored,       ///< A leader does not check whether something was written since.
  kRestoreUnnoticed,  ///< A node stays in its round although etcd was restored.
};

#ifdef MUSTER_INSTRUMENTED
inline std::atomic<Bug> planted_bug = Bug::kNone;
inline bool Planted(Bug bug) { return planted_bug.load(std::memory_order_relaxed) == bug; }
#else
constexpr bool Planted(Bug) { return false; }
#endif

struct Probe {
  const char* name;
  std::atomic<uint64_t> hits;
};

}  // namespace muster

#ifdef MUSTER_INSTRUMENTED
// All probes are in one section of the program, those never reached, too.
#define MUSTER_PROBE_IN(its_section, text)                                               \
  do {                                                                                   \
    __attribute__((section(its_section), used)) static ::muster::Probe probe{text, {0}}; \
    probe.hits.fetch_add(1, std::memory_order_relaxed);                                  \
  } while (false)
#else
#define MUSTER_PROBE_IN(its_section, text) \
  do {                                     \
  } while (false)
#endif

#define MUSTER_PROBE(text) MUSTER_PROBE_IN("muster_probes", text)
/// In code that only launchers run.
#define MUSTER_LAUNCH_PROBE(text) MUSTER_PROBE_IN("muster_launch_probes", text)
/// In code that only runs with etcd.
#define MUSTER_ETCD_PROBE(text) MUSTER_PROBE_IN("muster_etcd_probes", text)
