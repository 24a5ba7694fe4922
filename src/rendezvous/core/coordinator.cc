#include "rendezvous/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/instrumented.h"
#include "base/text.h"

namespace muster {

namespace {

// A deadline passes just after its instant, as in the tables of operations.cc.
constexpr Duration kJustAfter = 1ns;

WallTime Wall(Instant now) {
  return WallTime{std::chrono::duration_cast<std::chrono::microseconds>(now.since_start).count()};
}

Duration DeadAfter(const RunSettings& settings) {
  return settings.dead_after() * (Planted(Bug::kSlowToMiss) ? 5 : 1);
}

// Whether the member was in the last round that was complete.
bool WasInLast(const Coordinator::Run& run, const Coordinator::Member& member) {
  return member.place && member.place->round == run.completed_round;
}

bool InLastCall(const RendezvousState& state) {
  return state.deadline && !state.complete && !state.closed && !state.participants.empty();
}

// A member of a round may still read keys of the previous round: the failure that ended it.
constexpr size_t kScopesKept = 2;

void EndRound(Coordinator::Run& run, bool reforms) {
  run.reforms = reforms;
  run.held_until = {};
  run.waiting_sent = 0;
  run.losses = {};
  run.losses_unsent = {};
  run.state.round = std::max(run.state.round, run.round_floor);
}

// A node on the server's machine connects through the loopback interface, whose address is useless
// to the others. They reach it at the server's address.
std::string AddressOfFirst(const Coordinator::Run& run, const Node& first) {
  if (!IsLoopback(first.addr) || run.server_addr.empty()) return first.addr;
  const bool all_here = std::ranges::all_of(
      run.state.participants, [](const auto& member) { return IsLoopback(member.first.addr); });
  return all_here ? first.addr : run.server_addr;
}

// The last call waits for nodes that may still arrive. Only in a first round are they unknown.
bool AllAreHere(const Coordinator::Run& run) {
  if (!run.settings.forming || Planted(Bug::kReformAsFirst)) return false;
  if (run.reforms) return run.missing == 0;
  const int64_t expected = run.settings.forming->expected;
  return expected > 0 && std::ssize(run.state.participants) >= expected;
}

Duration LastCallOf(const Coordinator::Run& run) {
  const RunSettings& settings = run.settings;
  if (AllAreHere(run)) return Duration(0);
  const bool is_short = run.reforms && settings.forming && !Planted(Bug::kReformAsFirst);
  return is_short ? std::min(settings.forming->reform_timeout, settings.last_call)
                  : settings.last_call;
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options)
    : options_(options),
      server_generation_(NewToken()),
      closed_secret_(NewToken()),
      closed_runs_({options_.entropy(), options_.entropy()}, options_.closed_runs_max) {}

const Coordinator::Run* Coordinator::Find(std::string_view run_id) const {
  const auto found = runs_.find(run_id);
  return found == runs_.end() ? nullptr : &found->second;
}

// --- What nodes request

void Coordinator::Join(SessionKey key, Duration timeout, Instant now, Pushes& out) {
  const auto seat = SenderOf(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (member->joining) return SendState(*run, *member, out);  // repeated after a reconnect
  const bool leaves = run->state.participants.contains(member->node);
  const bool is_fenced = !Planted(Bug::kFencingIgnored);
  if (leaves && member->place && key.round < member->place->round && is_fenced) {
    MUSTER_PROBE("a node wanted the next round before it had heard of its present one");
    out.push_back(RefuseAsPast(key, "node '", member->node.ToString(), "' is in round ",
                               member->place->round, " already, and has not been notified yet"));
    return SendState(*run, *member, out);
  }
  // The node leaves its place and is admitted first, before waiting nodes and spares: a node that
  // returns from a round must not lose its place to them.
  const Before before{run->state.complete, run->state.participants.size()};
  if (leaves)
    Apply(Action::kRemoveFromParticipants, member->node, run->settings, Wall(now), &run->state);
  if (before.complete && !run->state.complete) EndRound(*run, /*reforms=*/true);
  if (leaves) run->held_until = {};  // its members must start again in any case
  member->joining = true;
  member->join_timeout = timeout;
  SetDeadline(*run, *member, now + timeout);
  Advance(*run, *member, now, out);
  if (leaves) Follow(*run, before, now, out);
  CompleteIfAllAreHere(*run, now, out);
  Reschedule(*run, now);
}

void Coordinator::Leave(SessionKey key, Instant now, Pushes& out) {
  const auto seat = SenderOf(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (!member->joining && key.round != run->state.round) {
    MUSTER_PROBE("a node wanted to leave a round that was over");
    out.push_back(RefuseAsPast(key, "round ", key.round, " is not the present one of run '",
                               Printable(run->id), "', which is ", run->state.round));
    return;
  }
  const int64_t left = run->state.round;
  StopJoining(*run, *member);
  Withdraw(*run, *member, now, out);
  CompleteIfAllAreHere(*run, now, out);
  Send(*run, *member, {.kind = Push::Kind::kLeft, .round = left}, out);
  Reschedule(*run, now);
}

void Coordinator::Close(SessionKey key, std::string_view reason, Instant now, Pushes& out) {
  const auto seat = SenderOf(key, now, out);
  if (!seat) return;
  Run& run = *seat->run;
  if (run.state.closed) return SendClosed(run, *seat->member, out);
  Apply(Action::kMarkClosed, seat->member->node, run.settings, Wall(now), &run.state);
  const std::string who = seat->member->node.ToString();
  run.state.closed_by = reason.empty() ? who : Concat(who, ": ", Printable(reason));
  for (auto& [node, member] : run.members) {
    if (member.joining) {
      Advance(run, member, now, out);
    } else {
      SendClosed(run, member, out);
    }
  }
  Reschedule(run, now);
}

// --- The machine

void Coordinator::Advance(Run& run, Member& member, Instant now, Pushes& out) {
  std::string missing;  // from before the node removed itself
  while (member.joining) {
    if (missing.empty() && now > member.join_by) missing = Missing(run);
    const Decision decision = DecideJoin({.state = run.state,
                                          .observed = run.observed,
                                          .self = member.node,
                                          .settings = run.settings,
                                          .now = now,
                                          .deadline = member.join_by,
                                          .last_call = LastCallOf(run)});
    switch (decision.action) {
      case Action::kSync:
      case Action::kFinish:  // the node was notified when the round was completed
        return;
      case Action::kErrorClosed:
      case Action::kErrorGraceful:
        SendClosed(run, member, out, decision.action == Action::kErrorGraceful);
        return StopJoining(run, member);
      case Action::kErrorTimeout:
        MUSTER_PROBE("a join came to nothing in time");
        Send(run, member,
             {.kind = Push::Kind::kTimedOut,
              .count = static_cast<int64_t>(run.state.participants.size()),
              .why = missing},
             out);
        StopJoining(run, member);
        return Withdraw(run, member, now, out);  // if the server was too late to do so earlier
      default:
        Do(run, member, decision.action, now, out);
    }
  }
}

void Coordinator::Do(Run& run, Member& member, Action action, Instant now, Pushes& out) {
  const Before before{run.state.complete, run.state.participants.size()};
  Apply(action, member.node, run.settings, Wall(now), &run.state);
  // A spare waits without limit. Once there is a place, its time to join starts again.
  if (action == Action::kAddToRedundancyList) SetDeadline(run, member, Instant::Never());
  if (action == Action::kRemoveFromRedundancyList)
    SetDeadline(run, member, now + member.join_timeout);
  if (!run.state.complete || before.complete) SendState(run, member, out);
  Follow(run, before, now, out);
}

void Coordinator::Follow(Run& run, const Before& before, Instant now, Pushes& out) {
  run.observed.SeeLastCall(run.state, now);
  const auto a_member_waits = [&] {
    return std::ranges::any_of(run.state.wait_list, [&](const Node& node) {
      return WasInLast(run, run.members.at(node));
    });
  };
  // The first of them may have given up before the others were admitted.
  if (!before.complete && run.state.participants.empty() && !a_member_waits()) run.reforms = false;
  if (!before.complete && run.state.complete) {
    Complete(run, now, out);
    MakeSpares(run, out);
  } else if (before.complete && !run.state.complete) {
    EndRound(run, run.reforms || a_member_waits());
    const std::set<Node> waiting = run.state.wait_list;  // a copy: they leave the list
    for (const Node& node : waiting) Advance(run, run.members.at(node), now, out);
    PromoteSpares(run, now, out);
  } else if (run.state.complete && run.state.participants.size() < before.participants) {
    PromoteSpares(run, now, out);
  }
  if (WaitingDueAt(run) <= now) NotifyWaiting(run, now, out);
}

// Promotes as many spares as there are free places, counting nodes that wait for one. If all spares
// joined, the rest would wait while the round is full, and its members would form new rounds for
// them without end.
void Coordinator::PromoteSpares(Run& run, Instant now, Pushes& out) {
  if (Planted(Bug::kSpareForgotten)) return;
  const RendezvousState& state = run.state;
  for (auto next = state.redundancy_list.begin(); next != state.redundancy_list.end();) {
    const size_t taken = state.participants.size() + state.wait_list.size();
    if (taken >= static_cast<size_t>(run.settings.max_nodes)) return;
    MUSTER_PROBE("a spare was promoted");
    const Node node = *next;  // a copy: it is about to be removed, perhaps with others
    Advance(run, run.members.at(node), now, out);
    next = state.redundancy_list.upper_bound(node);
  }
}

// The round has become full: nodes that still wait for it have no place.
void Coordinator::MakeSpares(Run& run, Pushes& out) {
  if (run.state.participants.size() < static_cast<size_t>(run.settings.max_nodes)) return;
  for (const Node& node : std::exchange(run.state.wait_list, {})) {
    MUSTER_PROBE("a node that waited became a spare");
    run.state.redundancy_list.insert(node);
    Member& member = run.members.at(node);
    SetDeadline(run, member, Instant::Never());
    SendState(run, member, out);
  }
}

void Coordinator::Complete(Run& run, Instant now, Pushes& out) {
  std::vector<Candidate> candidates;
  candidates.reserve(run.state.participants.size());
  for (const auto& [node, rank] : run.state.participants) {
    const Member& member = run.members.at(node);
    // As a label, the serial number gives ranks by arrival.
    candidates.push_back(
        {.node = node,
         .label = Planted(Bug::kRankByArrival) ? Concat(member.serial) : member.label});
    if (WasInLast(run, member)) candidates.back().rank_before = member.place->rank;
  }
  run.completed_round = run.state.round;
  const std::vector<int64_t> ranks = AssignRanks(
      Planted(Bug::kRankByArrival) ? RankPolicy::kLabel : run.settings.policy, candidates);
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
  run.waiting_sent = 0;
  const auto newcomers =
      std::ranges::count_if(candidates, [](const Candidate& each) { return !each.rank_before; });
  const bool reformed = std::exchange(run.reforms, false);
  run.missing = reformed ? std::max<int64_t>(run.missing - newcomers, 0) : 0;
  if (reformed && run.settings.forming) run.held_until = now + run.settings.forming->rejoin_window;
  UseScope(run);
  for (const auto& [node, rank] : run.state.participants) SendState(run, run.members.at(node), out);
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

// Removes all at once: the decisions after one loss must not rely on nodes that are lost, too.
void Coordinator::Lose(Run& run, const std::vector<Loss>& losses, Instant now, Pushes& out) {
  if (losses.empty()) return;
  const Before before{run.state.complete, run.state.participants.size()};
  std::set<Node> lost;
  for (const auto& [member, why] : losses) {
    Send(run, *member, {.kind = Push::Kind::kEnded, .why = why}, out);
    const bool is_in = run.state.participants.contains(member->node);
    if (run.state.complete && is_in) {
      run.losses.Add(member->node, why);
      run.losses_unsent.Add(member->node, why);
    }
    if (WasInLast(run, *member) && (is_in || run.state.wait_list.contains(member->node)))
      ++run.missing;
    StopJoining(run, *member);
    Detach(run, *member);
    Charge(member->from, 0, -static_cast<int64_t>(CostOf(member->node, member->label)));
    lost.insert(member->node);
  }
  for (const Node& node : lost) run.members.erase(node);
  Purge(lost, run.settings, &run.state);
  if (run.state.complete && LossesDueAt(run) <= now) NotifyLosses(run, now, out);
  Follow(run, before, now, out);
}

// --- Time

// Called after all waiting nodes were admitted: the first of them must not form a round alone.
void Coordinator::CompleteIfAllAreHere(Run& run, Instant now, Pushes& out) {
  if (!InLastCall(run.state) || !AllAreHere(run)) return;
  MUSTER_PROBE("a round was complete without a last call, for nobody else was known");
  Do(run, run.members.at(run.state.participants.begin()->first), Action::kMarkComplete, now, out);
}

Instant Coordinator::LastCallEnds(const Run& run) {
  return *run.observed.last_call_since() + LastCallOf(run);
}

Instant Coordinator::NextDueOf(const Run& run) const {
  Instant due = std::min({run.forget_at, LossesDueAt(run), WaitingDueAt(run)});
  if (options_.judges_silence && !run.by_silence.empty()) {
    due = std::min(due, run.by_silence.front()->seen_at + DeadAfter(run.settings) + kJustAfter);
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
    if (over) LeaveScopes(run, 0);  // no node is left to read them
    if (over) NoteUse(run, /*in_use=*/false);
  }
  const Instant due = NextDueOf(run);
  if (due == run.due) return;
  due_.erase({run.due, run.serial, &run});
  run.due = due;
  if (due != Instant::Never()) due_.insert({due, run.serial, &run});
}

void Coordinator::NoteUse(const Run& run, bool in_use) {
  if (options_.has_store && !run.is_replaced) use_changes_.push_back({run.id, in_use});
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
  while (runs_.size() >= options_.runs_max || ended_.size() >= options_.ended_max) {
    auto next = ended_.begin();
    // A closed run is evicted only if its key can be remembered until the run would have expired.
    if (!closed_runs_.HasRoom(now))
      next = std::ranges::find_if(
          ended_, [](const auto& ended) { return !std::get<Run*>(ended)->state.closed; });
    if (next == ended_.end()) return;
    Run& oldest = *std::get<Run*>(*next);
    if (oldest.state.closed)
      closed_runs_.Add(KeyOfClosed(oldest.id, oldest.generation.run), oldest.forget_at, now);
    Forget(oldest);
  }
}

void Coordinator::Forget(Run& run) {
  LeaveScopes(run, 0);
  due_.erase({run.due, run.serial, &run});
  ended_.erase({run.forget_at, run.serial, &run});
  Charge(run.from, -1, -static_cast<int64_t>(CostOf(run.id)));
  runs_.erase(run.is_replaced ? KeyOfClosed(run.id, run.generation.run) : std::string(run.id));
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
    if (!options_.judges_silence || silence <= DeadAfter(run.settings)) break;
    losses.push_back({member, Concat("not heard of for ", Milliseconds(silence), " ms")});
  }
  Lose(run, losses, now, out);
  if (LossesDueAt(run) <= now) NotifyLosses(run, now, out);
  if (WaitingDueAt(run) <= now) NotifyWaiting(run, now, out);
  if (losses.size() > 1) MUSTER_PROBE("several nodes were given up in one moment");
  // The first node may find that its own time to join is over, and leave: then the next node
  // completes the round.
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
    // A member may return within its grace from now: however long the pause was, a member whose
    // connection broke after the pause has no more time than that.
    const Instant latest = now + run.settings.grace;
    for (Due due : run.broken) {
      due.at = due.member->grace_ends = std::min(due.at + gap, latest);
      broken.insert(due);
    }
    run.broken.swap(broken);
  }
}

}  // namespace muster
