#include "sim/bugs.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace muster::sim {

namespace {

constexpr std::string_view kNotTogether = "not together, or not for long";

constexpr Sign kFencingIgnored[] = {
    {"a message of an earlier session has changed"},
    {kNotTogether,
     "a join that was sent before its node knew its round is executed: the node works in that "
     "round, and is not notified that the server has removed it"},
};
constexpr Sign kLastCallOffByOne[] = {
    {"min_nodes is"},
    {"has not formed again", "where one node is enough, no last call begins when it comes"},
    {kNotTogether,
     "with one node less than a full round, one rule ends the last call too early and the other "
     "one refuses that, without end"},
};
constexpr Sign kExpiryOnWallClock[] = {
    {kNotTogether,
     "a node whose clock is behind is removed as soon as it joins: only the promise that all "
     "come together breaks"},
};
constexpr Sign kStalePushAccepted[] = {
    {": it was in round"},
    {kNotTogether,
     "the place of the last round answers a call while the server has the node in the next one: "
     "it works in the last round alone, and no message ends that"},
};
constexpr Sign kRankByArrival[] = {{", out of order"}};
constexpr Sign kDoubleCompletion[] = {
    {"after it was completed"},
    {", and now ", "a node that is admitted changes the ranks of the others"},
    {" twice in round", "a node that is admitted has no rank of its own yet"},
    {"in a round of", "a node that is admitted has no rank of its own yet"},
    {"was given to", "two admitted nodes get one rank"},
    {"min_nodes is", "an admitted node completes the round again, with the nodes that are left"},
};
constexpr Sign kClosedForgotten[] = {{"closed, and open again"}};
constexpr Sign kRoundNotCounted[] = {
    {"was completed a second time"},
    {"after it was completed", "a node of the next round came into the one of that number"},
    {", and now ", "the next round of that number has other ranks"},
};
constexpr Sign kGraceForever[] = {
    {kNotTogether, "the others wait for a node that is gone, and nothing else goes wrong"},
};
constexpr Sign kSpareForgotten[] = {
    {kNotTogether, "a round continues with fewer nodes than it could have"},
};
// The overwritten data may be anything.
constexpr std::string_view kOverwritten = "what another node wrote is lost, whatever that was";
constexpr Sign kWriteUnfenced[] = {
    {"was completed a second time"},
    {": it was in round", kOverwritten},
    {" after round ", kOverwritten},
    {"after it was completed", kOverwritten},
    {", and now ", kOverwritten},
    {"was given to", kOverwritten},
    {"closed, and open again", kOverwritten},
    {"no node has completed such a round with it", kOverwritten},
    {"believes in", kOverwritten},
    {"is in the round and waits for one", kOverwritten},
    {"its workers meet at", kOverwritten},
    {kNotTogether, kOverwritten},
};
constexpr Sign kOneTooMany[] = {{"max_nodes is"}};
constexpr Sign kStaleAddress[] = {{"its workers meet at"}};
constexpr Sign kPlaceLostUntold[] = {{"after it was notified that it is out"}};
constexpr Sign kLossUntold[] = {
    {"was not notified that round"},
    {kNotTogether,
     "with packet loss notices have no time limit: members continue in a round that others "
     "have left"},
};
constexpr Sign kWaitingStale[] = {{"NumNodesWaiting() of"}};
constexpr Sign kStaleKeepAlive[] = {{"a message of an earlier session has changed a member"}};
constexpr Sign kMembershipCosts[] = {
    {"it has counted a restart, and no worker of its own had failed"},
    {"pays for the end of round",
     "a node that did not fail counts a restart in addition to the one that did"},
    {"max_restarts is", "it counts further than allowed"},
};
constexpr Sign kFailureUncounted[] = {{"and has not counted it"}};
constexpr Sign kBlameIgnored[] = {{"pays for the end of round"}};
constexpr Sign kLastUnswept[] = {{"processes that they left"}};
constexpr Sign kLastUnended[] = {
    {"an attempt is over, and not all of its workers are gone"},
    {"its workers continue in round",
     "they should have been stopped for another round, and were not"},
};
constexpr Sign kNeverKilled[] = {{"was signalled, did not end, and was not killed"}};
constexpr Sign kBarrierUnawaited[] = {{"ends, for all have succeeded"}};
constexpr Sign kRanksUnexchanged[] = {
    {" workers; node "},
    {"workers, ", "all believe in the same wrong number"},
    {"some of its workers have the", "with the wrong numbers ranks overlap"},
    {"its workers are", "with the wrong numbers ranks are outside"},
};
constexpr Sign kUnfencedLeader[] = {
    {"and does not lead"},
    {"of its plan: it is not there",
     "etcd is restored, with the leader's key: the leader continues a write whose first part has "
     "gone"},
};
constexpr Sign kUncommittedRound[] = {{"no node has completed such a round with it"}};
constexpr Sign kAssignmentOfOldRound[] = {
    {": it was in round", "the place of the last round is the answer: it enters that round again"},
    {kNotTogether,
     "the place is that of a round that its handler knows already: the join never ends, and the "
     "others continue in a round with a node that is not there"},
};
constexpr Sign kLostWatchEvent[] = {
    {kNotTogether, "a node waits for a change that is never sent: nothing else goes wrong"},
};

constexpr Sign kReformAsFirst[] = {{"has not formed again"}};
constexpr Sign kSlowToMiss[] = {{"99 of 100 runs of the driver coordinator healed within"}};

constexpr Sign kRestoreUnnoticed[] = {
    {kNotTogether, "members stay in a round that etcd has forgotten: nothing else goes wrong"},
};
constexpr Sign kGenerationReused[] = {{"has the keys of an older one"}};

constexpr PlantedBug kBugs[] = {
    {Bug::kFencingIgnored, "fencing-ignored", Driver::kCoordinator, kFencingIgnored},
    {Bug::kLastCallOffByOne, "last-call-off-by-one", Driver::kCoordinator, kLastCallOffByOne},
    {Bug::kExpiryOnWallClock, "expiry-on-wall-clock", Driver::kDocument, kExpiryOnWallClock},
    {Bug::kStalePushAccepted, "stale-push-accepted", Driver::kCoordinator, kStalePushAccepted},
    {Bug::kRankByArrival, "rank-by-arrival", Driver::kCoordinator, kRankByArrival},
    {Bug::kDoubleCompletion, "double-completion", Driver::kDocument, kDoubleCompletion},
    {Bug::kClosedForgotten, "closed-forgotten", Driver::kDocument, kClosedForgotten},
    {Bug::kRoundNotCounted, "round-not-counted", Driver::kCoordinator, kRoundNotCounted},
    {Bug::kGraceForever, "grace-forever", Driver::kCoordinator, kGraceForever},
    {Bug::kSpareForgotten, "spare-forgotten", Driver::kCoordinator, kSpareForgotten},
    {Bug::kWriteUnfenced, "write-unfenced", Driver::kDocument, kWriteUnfenced},
    {Bug::kOneTooMany, "one-too-many", Driver::kCoordinator, kOneTooMany},
    {Bug::kStaleAddress, "stale-address", Driver::kCoordinator, kStaleAddress},
    {Bug::kPlaceLostUntold, "place-lost-untold", Driver::kCoordinator, kPlaceLostUntold},
    {Bug::kLossUntold, "loss-untold", Driver::kCoordinator, kLossUntold},
    {Bug::kWaitingStale, "waiting-stale", Driver::kCoordinator, kWaitingStale},
    {Bug::kStaleKeepAlive, "stale-keep-alive", Driver::kCoordinator, kStaleKeepAlive},
    {Bug::kMembershipCosts, "membership-costs", Driver::kLauncher, kMembershipCosts},
    {Bug::kFailureUncounted, "failure-uncounted", Driver::kLauncher, kFailureUncounted},
    {Bug::kBlameIgnored, "blame-ignored", Driver::kLauncher, kBlameIgnored},
    {Bug::kLastUnswept, "last-unswept", Driver::kLauncher, kLastUnswept},
    {Bug::kLastUnended, "last-unended", Driver::kLauncher, kLastUnended},
    {Bug::kNeverKilled, "never-killed", Driver::kLauncher, kNeverKilled},
    {Bug::kBarrierUnawaited, "barrier-unawaited", Driver::kLauncher, kBarrierUnawaited},
    {Bug::kRanksUnexchanged, "ranks-unexchanged", Driver::kLauncher, kRanksUnexchanged},
    {Bug::kUnfencedLeader, "unfenced-leader", Driver::kEtcd, kUnfencedLeader},
    {Bug::kUncommittedRound, "uncommitted-round", Driver::kEtcd, kUncommittedRound},
    {Bug::kAssignmentOfOldRound, "assignment-of-old-round", Driver::kEtcd, kAssignmentOfOldRound},
    {Bug::kLostWatchEvent, "lost-watch-event", Driver::kEtcd, kLostWatchEvent},
    {Bug::kRestoreUnnoticed, "restore-unnoticed", Driver::kEtcd, kRestoreUnnoticed},
    {Bug::kGenerationReused, "generation-reused", Driver::kLauncher, kGenerationReused},
    {Bug::kReformAsFirst, "reform-as-first", Driver::kCoordinator, kReformAsFirst},
    {Bug::kSlowToMiss, "slow-to-miss", Driver::kCoordinator, kSlowToMiss},
};

const Sign* SignOf(const PlantedBug& bug, const std::string& what) {
  const auto sign = std::ranges::find_if(
      bug.signs, [&](const Sign& each) { return what.find(each.text) != std::string::npos; });
  return sign == bug.signs.end() ? nullptr : &*sign;
}

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

Hunted Hunt(const PlantedBug& bug, CampaignOptions options) {
  if (!Plant(bug.bug)) return {.wrong = "no bugs can be planted in this build"};
  const bool has_own_check =
      std::ranges::any_of(bug.signs, [](const Sign& sign) { return sign.why.empty(); });
  options.constraints.driver = bug.driver;
  options.findings_max = SIZE_MAX;
  options.is_last = [&](const Finding& finding) {
    const Sign* sign = SignOf(bug, finding.what);
    return sign == nullptr || sign->why.empty() || !has_own_check;
  };
  CampaignReport report = RunCampaign(options);
  Plant(Bug::kNone);
  Hunted hunted{.runs = report.runs};
  // With several threads the last finding need not be the one with the highest seed.
  const auto last = std::ranges::find_if(report.findings, options.is_last);
  if (last == report.findings.end() && !report.complaints.empty()) {
    hunted.finding = {Draw(options.first_seed, options.constraints), report.complaints[0]};
    hunted.is_of_all = true;
    if (SignOf(bug, hunted.finding.what) == nullptr)
      hunted.wrong = Concat("found by a complaint that is not its own: ", hunted.finding.what);
    return hunted;
  }
  if (last == report.findings.end()) {
    hunted.wrong = report.findings.empty()
                       ? std::string(kNotFound)
                       : Concat("only found by other checks than its own, at first: ",
                                report.findings[0].what);
    return hunted;
  }
  hunted.finding = *last;
  if (SignOf(bug, last->what) == nullptr)
    hunted.wrong = Concat("found by a violation that is not its own: ", last->what);
  return hunted;
}

}  // namespace muster::sim
