#include "sim/bugs.h"

namespace muster::sim {

namespace {
constexpr PlantedBug kBugs[] = {
    {Bug::kFencingIgnored, "fencing-ignored", Driver::kCoordinator},
    {Bug::kLastCallOffByOne, "last-call-off-by-one", Driver::kCoordinator},
    {Bug::kExpiryOnWallClock, "expiry-on-wall-clock", Driver::kDocument},
    {Bug::kStalePushAccepted, "stale-push-accepted", Driver::kCoordinator},
    {Bug::kRankByArrival, "rank-by-arrival", Driver::kCoordinator},
    {Bug::kDoubleCompletion, "double-completion", Driver::kDocument},
    {Bug::kClosedForgotten, "closed-forgotten", Driver::kDocument},
    {Bug::kRoundNotCounted, "round-not-counted", Driver::kCoordinator},
    {Bug::kGraceForever, "grace-forever", Driver::kCoordinator},
    {Bug::kSpareForgotten, "spare-forgotten", Driver::kCoordinator},
    {Bug::kWriteUnfenced, "write-unfenced", Driver::kDocument},
    {Bug::kOneTooMany, "one-too-many", Driver::kCoordinator},
    {Bug::kStaleAddress, "stale-address", Driver::kCoordinator},
    {Bug::kPlaceLostUntold, "place-lost-untold", Driver::kCoordinator},
    {Bug::kLossUntold, "loss-untold", Driver::kCoordinator},
    {Bug::kStaleKeepAlive, "stale-keep-alive", Driver::kCoordinator},
    {Bug::kMembershipCosts, "membership-costs", Driver::kLauncher},
    {Bug::kFailureUncounted, "failure-uncounted", Driver::kLauncher},
    {Bug::kBlameIgnored, "blame-ignored", Driver::kLauncher},
    {Bug::kLastUnswept, "last-unswept", Driver::kLauncher},
    {Bug::kLastUnended, "last-unended", Driver::kLauncher},
    {Bug::kNeverKilled, "never-killed", Driver::kLauncher},
    {Bug::kBarrierUnawaited, "barrier-unawaited", Driver::kLauncher},
    {Bug::kRanksUnexchanged, "ranks-unexchanged", Driver::kLauncher},
    {Bug::kUnfencedLeader, "unfenced-leader", Driver::kEtcd},
    {Bug::kUncommittedRound, "uncommitted-round", Driver::kEtcd},
    {Bug::kAssignmentOfOldRound, "assignment-of-old-round", Driver::kEtcd},
    {Bug::kLostWatchEvent, "lost-watch-event", Driver::kEtcd},
    {Bug::kRestoreUnnoticed, "restore-unnoticed", Driver::kEtcd},
};
}  // namespace

std::span<const PlantedBug> AllBugs() { return kBugs; }

bool Plant([[maybe_unused]] Bug bug) {
#ifdef MUSTER_INSTRUMENTED
  planted_bug = bug;
  return true;
#else
  return false;
#endif
}

}  // namespace muster::sim
