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
     "a join of the time before its node knew of its round is obeyed: the node works in that "
     "round, "
     "and nobody tells it that the server has taken it out"},
};
constexpr Sign kLastCallOffByOne[] = {
    {"min_nodes is"},
    {"has not formed again", "where one node is enough, no last call begins when it comes"},
    {kNotTogether,
     "with all but one of the nodes that make a round full, the last call is ended too early by "
     "one rule and refused by the other, again and again"},
};
constexpr Sign kExpiryOnWallClock[] = {
    {kNotTogether,
     "a node whose clock is behind is struck off as soon as it joins: what breaks is only that all "
     "come together"},
};
constexpr Sign kStalePushAccepted[] = {
    {": it was in round"},
    {kNotTogether,
     "the place of the last round answers a call while the server still has the node in the next: "
     "it works there alone, and nobody is there to tell it"},
};
constexpr Sign kRankByArrival[] = {{", out of order"}};
constexpr Sign kDoubleCompletion[] = {
    {"after it was completed"},
    {", and now ", "who is let in changes the ranks of the others"},
    {" twice in round", "who is let in has no rank of its own yet"},
    {"in a round of", "who is let in has no rank of its own yet"},
    {"was given to", "two who are let in are given one rank"},
    {"min_nodes is", "who is let in completes the round again, with those who are still there"},
};
constexpr Sign kClosedForgotten[] = {{"closed, and open again"}};
constexpr Sign kRoundNotCounted[] = {
    {"was completed a second time"},
    {"after it was completed", "whoever is in the next round came into the one of that number"},
    {", and now ", "the next round of that number has other ranks"},
};
constexpr Sign kGraceForever[] = {
    {kNotTogether, "the others wait for a node that is gone, and that is all that goes wrong"},
};
constexpr Sign kSpareForgotten[] = {
    {kNotTogether, "a round goes on with fewer nodes than it could have"},
};
// What was overwritten may be anything.
constexpr std::string_view kOverwritten = "what another node wrote is lost, whatever that was";
constexpr Sign kWriteUnfenced[] = {
    {"was completed a second time"},
    {": it was in round", kOverwritten},
    {" after round ", kOverwritten},
    {"after it was completed", kOverwritten},
    {", and now ", kOverwritten},
    {"was given to", kOverwritten},
    {"closed, and open again", kOverwritten},
    {"nobody has completed such a round with it", kOverwritten},
    {"believes in", kOverwritten},
    {"is in the round and waits for one", kOverwritten},
    {"its workers meet at", kOverwritten},
    {kNotTogether, kOverwritten},
};
constexpr Sign kOneTooMany[] = {{"max_nodes is"}};
constexpr Sign kStaleAddress[] = {{"its workers meet at"}};
constexpr Sign kPlaceLostUntold[] = {{"after it was told that it is out"}};
constexpr Sign kLossUntold[] = {
    {"has not heard that round"},
    {kNotTogether,
     "where packets are lost nobody says when news arrive: members go on in a round "
     "that others have left"},
};
constexpr Sign kWaitingStale[] = {{"NumNodesWaiting() of"}};
constexpr Sign kStaleKeepAlive[] = {{"a message of an earlier session has changed a member"}};
constexpr Sign kMembershipCosts[] = {
    {"it has counted a restart, and no worker of its own had failed"},
    {"pays for the end of round",
     "a node that did not fail counts a restart beside the one that did"},
    {"max_restarts is", "it counts on, beyond what was allowed"},
};
constexpr Sign kFailureUncounted[] = {{"and has not counted it"}};
constexpr Sign kBlameIgnored[] = {{"pays for the end of round"}};
constexpr Sign kLastUnswept[] = {{"processes that they left"}};
constexpr Sign kLastUnended[] = {
    {"an attempt is over, and not all of its workers are gone"},
    {"its workers go on in round", "they were to be stopped for another round, and were not"},
};
constexpr Sign kNeverKilled[] = {{"was told to end, did not, and was not killed"}};
constexpr Sign kBarrierUnawaited[] = {{"ends, for all have succeeded"}};
constexpr Sign kRanksUnexchanged[] = {
    {" workers; node "},
    {"workers, ", "all believe in the same wrong number"},
    {"some of its workers have the", "with the wrong numbers ranks overlap"},
    {"its workers are", "with the wrong numbers ranks are outside"},
};
constexpr Sign kUnfencedLeader[] = {{"and does not lead"}};
constexpr Sign kUncommittedRound[] = {{"nobody has completed such a round with it"}};
constexpr Sign kAssignmentOfOldRound[] = {
    {kNotTogether,
     "the place is that of a round that its handler knows already: the join never ends, and the "
     "others go on in a round with a node that is not there"},
};
constexpr Sign kLostWatchEvent[] = {
    {kNotTogether, "a change that is not told is waited for: nothing else goes wrong"},
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
  // With several threads the last one need not be the one with the highest seed.
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
