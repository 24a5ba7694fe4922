// Bugs, planted on purpose: a test that cannot find them proves nothing. One at a time, chosen by
// whoever tests; in builds without MUSTER_INSTRUMENTED (what users run) there are none.
#pragma once

#include <atomic>
#include <cstdint>

namespace muster {

enum class Bug : uint8_t {
  kNone,
  kFencingIgnored,     ///< A message of an earlier connection, or of an earlier round, is obeyed.
  kLastCallOffByOne,   ///< A round is completed with one node too few.
  kExpiryOnWallClock,  ///< A node whose wall clock is behind is taken for dead.
  kStalePushAccepted,  ///< What was said of the last round answers the call for the next.
  kRankByArrival,      ///< Who comes first is the first.
  kDoubleCompletion,   ///< Whoever comes to a complete round is let in.
  kClosedForgotten,    ///< A heartbeat opens what was closed.
  kRoundNotCounted,    ///< The next round has the number of the last.
  kGraceForever,       ///< A node whose connection broke is waited for without end.
  kSpareForgotten,     ///< A place that becomes free stays so.
  kWriteUnfenced,      ///< The document is written over whatever is there.
  kOneTooMany,         ///< A round has one node more than allowed.
  kStaleAddress,       ///< Workers are sent to rank 0 of an earlier round.
  kPlaceLostUntold,    ///< A node that was given up does not hear of it.
  kLossUntold,         ///< The others do not.
  kStaleKeepAlive,     ///< A message of an earlier connection shows that its node lives.
  kMembershipCosts,    ///< A launcher counts a restart although others came or went.
  kFailureUncounted,   ///< ... or does not although its own workers failed.
  kBlameIgnored,       ///< Each node pays for the failure of one.
  kLastUnswept,        ///< What workers leave behind lives on beside the next.
  kLastUnended,        ///< The workers themselves do.
  kNeverKilled,        ///< A worker that is deaf is waited for without end.
  kBarrierUnawaited,   ///< Who is done takes the others for done.
  kRanksUnexchanged,   ///< Nodes with different numbers of workers count as if they had the same.
  kUnfencedLeader,     ///< A leader in etcd writes on although another one has been elected.
  kUncommittedRound,   ///< ... or tells of a round that the next one will not know of.
  kAssignmentOfOldRound,  ///< A node takes its last place for the answer to its next wish.
  kLostWatchEvent,        ///< A change in etcd is not told.
  kGenerationReused,      ///< Two runs of one name have the same keys.
  kWaitingStale,          ///< Members do not hear that nobody waits any more.
  kSlowToMiss,            ///< A node that is silent is declared lost three times as late.
  // Each half of kUnfencedLeader. The other half hides it from most simulated runs: tests of the
  // outbox plant them.
  kFenceIgnored,      ///< A leader in etcd does not ask whether it leads.
  kTurnIgnored,       ///< ... or whether something was written since.
  kRestoreUnnoticed,  ///< A node goes on in its round although etcd has gone back.
};

#ifdef MUSTER_INSTRUMENTED
inline std::atomic<Bug> planted_bug = Bug::kNone;
inline bool Planted(Bug bug) { return planted_bug.load(std::memory_order_relaxed) == bug; }
#else
constexpr bool Planted(Bug) { return false; }
#endif

}  // namespace muster
