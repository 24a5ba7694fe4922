#include "rendezvous/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/planted.h"
#include "base/prng.h"
#include "base/probe.h"
#include "base/text.h"
#include "rendezvous/core/transitions.h"

namespace muster {

namespace {

// What is over at an instant is over just after it, as in the tables of operations.cc.
constexpr Duration kJustAfter = 1ns;

WallTime Wall(Instant now) {
  return WallTime{std::chrono::duration_cast<std::chrono::microseconds>(now.since_start).count()};
}

Duration DeadAfter(const RendezvousRules& rules) {
  return rules.dead_after() * (Planted(Bug::kSlowToMiss) ? 3 : 1);
}

bool InLastCall(const RendezvousState& state) {
  return state.deadline && !state.complete && !state.closed && !state.participants.empty();
}

// A member of a round may still look for keys of the one before: the failure that ended it.
constexpr size_t kScopesKept = 2;

CoordinatorOptions WithEntropy(CoordinatorOptions options) {
  if (!options.entropy) options.entropy = [prng = Prng(0)]() mutable { return prng.Next(); };
  return options;
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options)
    : options_(WithEntropy(options)),
      server_generation_(NewToken()),
      closed_runs_({options_.entropy(), options_.entropy()}, options_.closed_runs_max) {}

const Coordinator::Run* Coordinator::Find(std::string_view run_id) const {
  const auto found = runs_.find(run_id);
  return found == runs_.end() ? nullptr : &found->second;
}

// ----------------------------------------------------------------------------------------------
// what nodes ask for

void Coordinator::Join(SessionKey key, Duration timeout, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (member->joining) return TellState(*run, *member, out);  // said twice, as it was not sure
  const bool leaves = run->state.participants.contains(member->node);
  const bool is_fenced = !Planted(Bug::kFencingIgnored);
  if (leaves && member->place && key.round < member->place->round && is_fenced) {
    MUSTER_PROBE("a node wanted the next round before it had heard of its present one");
    out.push_back(Refuse(key, Push::Refusal::kPast,
                         Concat("node '", member->node.ToString(), "' is in round ",
                                member->place->round, " already, and has not heard of it")));
    return TellState(*run, *member, out);
  }
  // It gives up its place and is the first to be served, before those who wait, and spares: whoever
  // comes back from a round is not to lose its place to them.
  const Before before(run->state);
  if (leaves)
    Apply(Action::kRemoveFromParticipants, member->node, run->rules, Wall(now), &run->state);
  if (before.complete && !run->state.complete) EndRound(*run);
  member->joining = true;
  member->join_timeout = timeout;
  SetDeadline(*run, *member, now + timeout);
  Advance(*run, *member, now, out);
  if (leaves) Follow(*run, before, now, out);
  Reschedule(*run, now);
}

void Coordinator::Leave(SessionKey key, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (!member->joining && key.round != run->state.round) {
    MUSTER_PROBE("a node wanted to leave a round that was over");
    out.push_back(Refuse(key, Push::Refusal::kPast,
                         Concat("round ", key.round, " is not the present one of run '",
                                Printable(run->id), "', which is ", run->state.round)));
    return;
  }
  const int64_t left = run->state.round;
  StopJoining(*run, *member);
  Withdraw(*run, *member, now, out);
  Tell(*run, *member, {.kind = Push::Kind::kLeft, .round = left}, out);
  Reschedule(*run, now);
}

void Coordinator::Close(SessionKey key, std::string_view reason, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  Run& run = *seat->run;
  if (run.state.closed) return TellClosed(run, *seat->member, out);
  Apply(Action::kMarkClosed, seat->member->node, run.rules, Wall(now), &run.state);
  const std::string who = seat->member->node.ToString();
  run.state.closed_by = reason.empty() ? who : Concat(who, ": ", Printable(reason));
  for (auto& [node, member] : run.members) {
    if (member.joining) {
      Advance(run, member, now, out);
    } else {
      TellClosed(run, member, out);
    }
  }
  Reschedule(run, now);
}

// ----------------------------------------------------------------------------------------------
// the machine

Outlook Coordinator::Look(const Run& run, const Member& member, Instant now) const {
  return {.state = run.state,
          .observed = run.observed,
          .self = member.node,
          .rules = run.rules,
          .now = now,
          .deadline = member.join_by};
}

void Coordinator::Advance(Run& run, Member& member, Instant now, Pushes& out) {
  std::string missing;  // said of the time before the node took itself out
  while (member.joining) {
    if (missing.empty() && now > member.join_by) missing = Missing(run);
    const Decision decision = DecideJoin(Look(run, member, now));
    switch (decision.action) {
      case Action::kSync:
      case Action::kFinish:  // told when the round was completed
        return;
      case Action::kErrorClosed:
      case Action::kErrorGraceful:
        TellClosed(run, member, out, decision.action == Action::kErrorGraceful);
        return StopJoining(run, member);
      case Action::kErrorTimeout:
        MUSTER_PROBE("a join came to nothing in time");
        Tell(run, member,
             {.kind = Push::Kind::kTimedOut,
              .count = static_cast<int64_t>(run.state.participants.size()),
              .why = missing},
             out);
        StopJoining(run, member);
        return Withdraw(run, member, now, out);  // where the server looked too late to do so before
      default:
        Do(run, member, decision.action, now, out);
    }
  }
}

void Coordinator::Do(Run& run, Member& member, Action action, Instant now, Pushes& out) {
  const Before before(run.state);
  Apply(action, member.node, run.rules, Wall(now), &run.state);
  // A spare waits without limit. Once there is a place, its time to join begins anew.
  if (action == Action::kAddToRedundancyList) SetDeadline(run, member, Instant::Never());
  if (action == Action::kRemoveFromRedundancyList)
    SetDeadline(run, member, now + member.join_timeout);
  if (!run.state.complete || before.complete) TellState(run, member, out);
  Follow(run, before, now, out);
}

void Coordinator::Follow(Run& run, const Before& before, Instant now, Pushes& out) {
  run.observed.SeeLastCall(run.state, now);
  if (!before.complete && run.state.complete) {
    Complete(run, out);
    MakeSpares(run, out);
  } else if (before.complete && !run.state.complete) {
    EndRound(run);
    AdvanceAll(run, std::set<Node>(run.state.wait_list), now, out);
    PromoteSpares(run, now, out);
  } else if (run.state.complete && run.state.participants.size() < before.participants) {
    PromoteSpares(run, now, out);
  }
  if (TellWaitingAt(run) <= now) TellWaiting(run, now, out);
}

void Coordinator::EndRound(Run& run) {
  run.told_waiting = 0;
  run.fallen = {};
  run.untold = {};
  run.state.round = std::max(run.state.round, run.round_floor);
}

void Coordinator::AdvanceAll(Run& run, const std::set<Node>& nodes, Instant now, Pushes& out) {
  for (const Node& node : nodes) Advance(run, run.members.at(node), now, out);
}

// As many as there are places, counting those who wait for one already. (Were all of them to go for
// a place, the rest would wait for one in a full round, its members would come together for their
// sake, and again.)
void Coordinator::PromoteSpares(Run& run, Instant now, Pushes& out) {
  if (Planted(Bug::kSpareForgotten)) return;
  const RendezvousState& state = run.state;
  for (auto next = state.redundancy_list.begin(); next != state.redundancy_list.end();) {
    const size_t taken = state.participants.size() + state.wait_list.size();
    if (taken >= static_cast<size_t>(run.rules.max_nodes)) return;
    MUSTER_PROBE("a spare was promoted");
    const Node node = *next;  // which is about to be taken off the list, perhaps with others
    Advance(run, run.members.at(node), now, out);
    next = state.redundancy_list.upper_bound(node);
  }
}

// The round has become full, and others who waited for it have found no place.
void Coordinator::MakeSpares(Run& run, Pushes& out) {
  if (run.state.participants.size() < static_cast<size_t>(run.rules.max_nodes)) return;
  for (const Node& node : std::exchange(run.state.wait_list, {})) {
    MUSTER_PROBE("a node that waited became a spare");
    run.state.redundancy_list.insert(node);
    Member& member = run.members.at(node);
    SetDeadline(run, member, Instant::Never());
    TellState(run, member, out);
  }
}

void Coordinator::Complete(Run& run, Pushes& out) {
  std::vector<Candidate> candidates;
  candidates.reserve(run.state.participants.size());
  for (const auto& [node, rank] : run.state.participants) {
    const Member& member = run.members.at(node);
    const bool was_in_last = member.place && member.place->round == run.completed_round;
    candidates.push_back(
        {.node = node,
         .label = member.label,
         .rank_before = was_in_last ? std::optional(member.place->rank) : std::nullopt});
  }
  run.completed_round = run.state.round;
  std::vector<int64_t> ranks = AssignRanks(run.settings.policy, candidates);
  if (Planted(Bug::kRankByArrival)) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      const uint64_t serial = run.members.at(candidates[i].node).serial;
      ranks[i] = std::ranges::count_if(candidates, [&](const Candidate& other) {
        return run.members.at(other.node).serial < serial;
      });
    }
  }
  size_t index = 0;
  for (auto& [node, rank] : run.state.participants) {
    rank = ranks[index++];
    Member& member = run.members.at(node);
    member.place = Place{.round = run.state.round, .rank = rank};
    if (rank == 0 && !(Planted(Bug::kStaleAddress) && !run.first_addr.empty())) {
      run.first_addr = AddressOfFirst(run, node);
      run.first_port = member.bootstrap_port;
    }
    StopJoining(run, member);
  }
  run.told_waiting = 0;
  UseScope(run);
  for (const auto& [node, rank] : run.state.participants) TellState(run, run.members.at(node), out);
}

// A node beside the server comes through the loopback interface: an address that leads the others
// nowhere. Where they found the server, they find it, too.
std::string Coordinator::AddressOfFirst(const Run& run, const Node& first) {
  if (!IsLoopback(first.addr) || run.server_addr.empty()) return first.addr;
  const bool all_here = std::ranges::all_of(
      run.state.participants, [](const auto& member) { return IsLoopback(member.first.addr); });
  return all_here ? first.addr : run.server_addr;
}

void Coordinator::SetDeadline(Run& run, Member& member, Instant deadline) {
  run.deadlines.erase({member.join_by, member.serial, &member});
  member.join_by = deadline;
  if (deadline != Instant::Never()) run.deadlines.insert({deadline, member.serial, &member});
}

void Coordinator::StopJoining(Run& run, Member& member) {
  SetDeadline(run, member, Instant::Never());
  member.joining = false;
}

void Coordinator::Withdraw(Run& run, Member& member, Instant now, Pushes& out) {
  const RendezvousState& state = run.state;
  if (state.participants.contains(member.node)) {
    Do(run, member, Action::kRemoveFromParticipants, now, out);
  } else if (state.wait_list.contains(member.node)) {
    Do(run, member, Action::kRemoveFromWaitList, now, out);
  } else if (state.redundancy_list.contains(member.node)) {
    Do(run, member, Action::kRemoveFromRedundancyList, now, out);
    StopJoining(run, member);
  }
}

// All at once: whoever acts on one loss must not find others there who are lost, too.
void Coordinator::Lose(Run& run, const std::vector<Loss>& losses, Instant now, Pushes& out) {
  if (losses.empty()) return;
  const Before before(run.state);
  std::set<Node> lost;
  for (const auto& [member, why] : losses) {
    Tell(run, *member, {.kind = Push::Kind::kEnded, .why = why}, out);
    if (run.state.complete && run.state.participants.contains(member->node)) {
      run.fallen.Add(member->node, why);
      run.untold.Add(member->node, why);
    }
    StopJoining(run, *member);
    Detach(run, *member);
    bytes_ -= CostOf(member->node, member->label);
    lost.insert(member->node);
  }
  for (const Node& node : lost) run.members.erase(node);
  Purge(lost, run.rules, &run.state);
  if (run.state.complete && TellLostAt(run) <= now) TellLost(run, now, out);
  Follow(run, before, now, out);
}

// ----------------------------------------------------------------------------------------------
// what nodes are told

// At once; but where many die, one after the other, all others are not told of each.
Instant Coordinator::TellLostAt(const Run& run) const {
  return run.untold.count == 0 ? Instant::Never() : run.told_lost + options_.notice_pause;
}

void Coordinator::TellLost(Run& run, Instant now, Pushes& out) {
  if (run.untold.count > 1) MUSTER_PROBE("several losses were told at once");
  run.told_lost = now;
  const Push push = std::exchange(run.untold, {}).ToPush();
  if (Planted(Bug::kLossUntold)) return;
  for (const auto& [node, rank] : run.state.participants)
    Tell(run, run.members.at(node), push, out);
}

void Coordinator::Tell(const Run& run, const Member& member, Push push, Pushes& out) {
  if (!member.session) return;
  push.to = *member.session;
  push.token = member.token;
  push.incarnation = member.incarnation;
  if (push.kind != Push::Kind::kLeft) push.round = run.state.round;
  out.push_back(std::move(push));
}

void Coordinator::TellClosed(const Run& run, const Member& member, Pushes& out, bool graceful) {
  Tell(run, member, {.kind = Push::Kind::kClosed, .graceful = graceful, .who = run.state.closed_by},
       out);
}

void Coordinator::TellState(const Run& run, const Member& member, Pushes& out) {
  const RendezvousState& state = run.state;
  Push push{.count = static_cast<int64_t>(state.participants.size())};
  if (const auto place = state.participants.find(member.node); place != state.participants.end()) {
    push.kind = state.complete ? Push::Kind::kComplete : Push::Kind::kAdmitted;
    if (state.complete) {
      push.rank = place->second;
      push.world_size = state.WorldSize();
      push.addr = run.first_addr;
      push.port = run.first_port;
      push.generation = run.generation;
    }
  } else if (state.wait_list.contains(member.node)) {
    push.kind = Push::Kind::kWaiting;
  } else if (state.redundancy_list.contains(member.node)) {
    push.kind = Push::Kind::kSpare;
  } else {
    return;
  }
  Tell(run, member, std::move(push), out);
}

// At once when there are any, and when there are none any more. In between when they have doubled:
// that is enough to go by. At most once in `notice_pause` in every direction: one node that joins
// and leaves in turn must not cost a message to each member every time.
Instant Coordinator::TellWaitingAt(const Run& run) const {
  const auto waiting = static_cast<int64_t>(run.state.wait_list.size());
  if (!run.state.complete || waiting == run.told_waiting) return Instant::Never();
  const bool has_doubled = waiting >= 2 * run.told_waiting;
  if (waiting > 0 && !has_doubled) return Instant::Never();
  return run.told_waiting_at + options_.notice_pause;
}

void Coordinator::TellWaiting(Run& run, Instant now, Pushes& out) {
  run.told_waiting = static_cast<int64_t>(run.state.wait_list.size());
  run.told_waiting_at = now;
  if (Planted(Bug::kWaitingStale) && run.told_waiting == 0) return;
  for (const auto& [node, rank] : run.state.participants) {
    Tell(run, run.members.at(node), {.kind = Push::Kind::kNodesWaiting, .count = run.told_waiting},
         out);
  }
}

// ----------------------------------------------------------------------------------------------
// time

Instant Coordinator::LastCallEnds(const Run& run) {
  return *run.observed.last_call_since() + run.rules.timeout.last_call;
}

Instant Coordinator::NextDueOf(const Run& run) const {
  Instant due = std::min({run.forget_at, TellLostAt(run), TellWaitingAt(run)});
  if (options_.judges_silence && !run.by_silence.empty()) {
    due = std::min(due, run.by_silence.front()->seen_at + DeadAfter(run.rules) + kJustAfter);
  }
  if (!run.broken.empty()) due = std::min(due, run.broken.begin()->at);
  if (!run.deadlines.empty()) due = std::min(due, run.deadlines.begin()->at + kJustAfter);
  if (InLastCall(run.state)) {
    due = std::min(due, LastCallEnds(run) + kJustAfter);
  }
  return due;
}

void Coordinator::Reschedule(Run& run, Instant now) {
  const bool over = run.members.empty();
  if (over != (run.forget_at != Instant::Never())) {
    ended_.erase({run.forget_at, run.serial, &run});
    run.forget_at = over ? now + options_.ended_kept : Instant::Never();
    if (over) ended_.insert({run.forget_at, run.serial, &run});
    if (over) LeaveScopes(run, 0);  // nobody is left to read them
    if (over && options_.has_store) use_changes_.push_back({run.id, /*in_use=*/false});
  }
  const Instant due = NextDueOf(run);
  if (due == run.due) return;
  due_.erase({run.due, run.serial, &run});
  run.due = due;
  if (due != Instant::Never()) due_.insert({due, run.serial, &run});
}

void Coordinator::UseScope(Run& run) {
  run.scopes.push_back(run.state.round);
  if (options_.has_store)
    scope_changes_.push_back({run.generation, run.state.round, /*in_use=*/true});
  LeaveScopes(run, kScopesKept);
}

void Coordinator::LeaveScopes(Run& run, size_t kept) {
  while (run.scopes.size() > kept) {
    if (options_.has_store)
      scope_changes_.push_back({run.generation, run.scopes.front(), /*in_use=*/false});
    run.scopes.erase(run.scopes.begin());
  }
}

void Coordinator::EvictEnded(Instant now) {
  const bool is_full = runs_.size() >= options_.runs_max;
  if (ended_.empty() || (!is_full && ended_.size() < options_.ended_max)) return;
  auto next = ended_.begin();
  // A closed run is evicted only if its name can be remembered until its time is over.
  if (!closed_runs_.HasRoom(now))
    next = std::ranges::find_if(
        ended_, [](const auto& ended) { return !std::get<Run*>(ended)->state.closed; });
  if (next == ended_.end()) return;
  Run& oldest = *std::get<Run*>(*next);
  if (oldest.state.closed) closed_runs_.Add(oldest.id, oldest.forget_at, now);
  Forget(oldest);
}

void Coordinator::Forget(Run& run) {
  LeaveScopes(run, 0);
  due_.erase({run.due, run.serial, &run});
  ended_.erase({run.forget_at, run.serial, &run});
  bytes_ -= CostOf(run.id);
  runs_.erase(runs_.find(run.id));
}

Instant Coordinator::NextDue() const {
  return due_.empty() ? Instant::Never() : std::get<Instant>(*due_.begin());
}

void Coordinator::Tick(Instant now, Pushes& out) {
  while (NextDue() <= now) {
    Run& run = *std::get<Run*>(*due_.begin());
    if (run.forget_at <= now) {
      Forget(run);
      continue;
    }
    TickRun(run, now, out);
    Reschedule(run, now);
    MUSTER_ASSERT(run.due > now);
  }
}

void Coordinator::TickRun(Run& run, Instant now, Pushes& out) {
  std::vector<Loss> losses;
  for (const Due& due : run.broken) {
    if (due.at > now) break;
    losses.push_back({due.member, options_.judges_silence
                                      ? "its connection ended, and it did not come back"
                                      : "its lease has ended"});
  }
  for (Member* member : run.by_silence) {
    const Duration silence = now - member->seen_at;
    if (!options_.judges_silence || silence <= DeadAfter(run.rules)) break;
    losses.push_back({member, Concat("not heard of for ", Milliseconds(silence), " ms")});
  }
  Lose(run, losses, now, out);
  if (TellLostAt(run) <= now) TellLost(run, now, out);
  if (TellWaitingAt(run) <= now) TellWaiting(run, now, out);
  if (losses.size() > 1) MUSTER_PROBE("several nodes were given up in one moment");
  // Who is first may find that its own time is over, too, and leave that to the next.
  while (InLastCall(run.state) && LastCallEnds(run) < now) {
    Advance(run, run.members.at(run.state.participants.begin()->first), now, out);
  }
  while (!run.deadlines.empty() && run.deadlines.begin()->at < now) {
    Advance(run, *run.deadlines.begin()->member, now, out);
  }
}

void Coordinator::ForgiveSilence(Duration gap, Instant now) {
  MUSTER_PROBE("the server stood still, and excused everybody");
  for (auto& [id, run] : runs_) {
    for (Member* member : run.by_silence) member->seen_at = std::min(member->seen_at + gap, now);
    std::set<Due> broken;
    // A member that comes back does so within its grace from now: however long the gap was, a
    // member whose connection broke after it is not waited for any longer.
    const Instant latest = now + run.settings.grace;
    for (Due due : run.broken) {
      due.at = due.member->grace_ends = std::min(due.at + gap, latest);
      broken.insert(due);
    }
    run.broken.swap(broken);
  }
}

// ----------------------------------------------------------------------------------------------
// for whoever asks

std::vector<RunReport> Coordinator::Reports(std::string_view after, size_t runs_max,
                                            Instant now) const {
  std::vector<RunReport> reports;
  for (auto run = runs_.upper_bound(after); run != runs_.end() && reports.size() < runs_max; ++run)
    reports.push_back(ReportOn(run->second, 0, now));
  return reports;
}

std::optional<RunReport> Coordinator::Report(std::string_view run_id, size_t names_max,
                                             Instant now) const {
  const Run* run = Find(run_id);
  if (run == nullptr) return std::nullopt;
  return ReportOn(*run, names_max, now);
}

}  // namespace muster
