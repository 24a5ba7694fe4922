#include "core/rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/text.h"
#include "core/rendezvous/transitions.h"

namespace muster {

namespace {

// What is over at an instant is over just after it, as in the tables of operations.cc.
constexpr Duration kJustAfter = 1ns;

WallTime Wall(Instant now) {
  return WallTime{std::chrono::duration_cast<std::chrono::microseconds>(now.since_start).count()};
}

int64_t Milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

RendezvousRules RulesOf(const std::string& run_id, const RunSettings& settings) {
  return {.run_id = run_id,
          .min_nodes = settings.min_nodes,
          .max_nodes = settings.max_nodes,
          .timeout = {.last_call = settings.last_call},
          .keep_alive_interval = settings.keep_alive_interval,
          .keep_alive_max_attempt = settings.keep_alive_max_attempt};
}

bool InLastCall(const RendezvousState& state) {
  return state.deadline && !state.complete && !state.closed && !state.participants.empty();
}

Push Refusal(SessionId to, std::string why) {
  return {.to = to, .kind = Push::Kind::kRefused, .why = std::move(why)};
}

}  // namespace

std::string RunSettings::Against(const RunSettings& other) const {
  std::string out;
  const auto compare = [&out](std::string_view name, auto mine, auto theirs) {
    if (mine != theirs)
      out += Concat(out.empty() ? "" : ", ", name, " ", mine, " against ", theirs);
  };
  compare("min_nodes", min_nodes, other.min_nodes);
  compare("max_nodes", max_nodes, other.max_nodes);
  compare("last_call in ms", Milliseconds(last_call), Milliseconds(other.last_call));
  compare("keep_alive_interval in ms", Milliseconds(keep_alive_interval),
          Milliseconds(other.keep_alive_interval));
  compare("keep_alive_max_attempt", keep_alive_max_attempt, other.keep_alive_max_attempt);
  compare("grace in ms", Milliseconds(grace), Milliseconds(other.grace));
  compare("rank policy", Name(policy), Name(other.policy));
  return out;
}

Coordinator::Coordinator(const CoordinatorOptions& options)
    : options_(options), prng_(options.seed) {}

const Coordinator::Run* Coordinator::Find(std::string_view run_id) const {
  const auto found = runs_.find(run_id);
  return found == runs_.end() ? nullptr : &found->second;
}

// ----------------------------------------------------------------------------------------------
// sessions

Coordinator::Run* Coordinator::RunFor(const Hello& hello, SessionId session, Pushes& out) {
  const auto refuse = [&](std::string why) {
    out.push_back(Refusal(session, std::move(why)));
    return nullptr;
  };
  if (hello.run_id.empty())
    return refuse("the run id is empty: it names the rendezvous and must not be");
  const RunSettings& wanted = hello.settings;
  if (wanted.min_nodes < 1 || wanted.max_nodes < wanted.min_nodes) {
    return refuse(
        Concat("a round of ", wanted.min_nodes, " to ", wanted.max_nodes, " nodes cannot be"));
  }
  auto found = runs_.find(hello.run_id);
  if (found == runs_.end()) {
    if (runs_.size() >= options_.runs_max) {
      return refuse(Concat("this server has ", runs_.size(), " runs already, its limit"));
    }
    found = runs_.try_emplace(hello.run_id).first;
    found->second.id = hello.run_id;
  }
  Run& run = found->second;
  if (run.members.empty() && !run.state.closed) {
    run.settings = wanted;
    run.settings_of = hello.node.ToString();
    run.rules = RulesOf(run.id, wanted);
  }
  if (wanted == run.settings) return &run;
  return refuse(Concat("node '", hello.node.ToString(), "' and node '", run.settings_of,
                       "' of run '", Printable(run.id),
                       "' have been told different things: ", wanted.Against(run.settings)));
}

void Coordinator::Open(SessionId session, const Hello& hello, Instant now, Pushes& out) {
  MUSTER_ASSERT(!seats_.contains(session));
  Run* run = RunFor(hello, session, out);
  if (run == nullptr) return;
  const auto known = run->members.find(hello.node);
  if (known != run->members.end()) {
    Member& member = known->second;
    if (hello.resume != 0 && hello.resume == member.token) {
      Resume(*run, member, session, now, out);
      return Reschedule(*run, now);
    }
    if (member.session) {
      out.push_back(
          Refusal(session, Concat("node '", hello.node.ToString(), "' of run '", Printable(run->id),
                                  "' has a session already: two nodes cannot be one")));
      return;
    }
    Lose(*run, member, "it started anew", now, out);
  }
  if (run->members.size() >= options_.nodes_per_run_max) {
    out.push_back(
        Refusal(session, Concat("run '", Printable(run->id), "' has ", run->members.size(),
                                " nodes already, the limit of this server")));
    return;
  }
  OpenAnew(*run, session, hello, now, out);
  Reschedule(*run, now);
}

void Coordinator::OpenAnew(Run& run, SessionId session, const Hello& hello, Instant now,
                           Pushes& out) {
  Member& member = run.members[hello.node];
  member.node = hello.node;
  member.label = hello.label;
  member.bootstrap_port = hello.bootstrap_port;
  member.token = std::max<uint64_t>(prng_.Next(), 1);
  Attach(run, member, session, now);
  out.push_back({.to = session,
                 .kind = Push::Kind::kOpened,
                 .round = run.state.round,
                 .token = member.token});
}

void Coordinator::Resume(Run& run, Member& member, SessionId session, Instant now, Pushes& out) {
  // The old connection may not have noticed yet that it is one.
  Detach(run, member);
  Attach(run, member, session, now);
  out.push_back({.to = session,
                 .kind = Push::Kind::kOpened,
                 .round = run.state.round,
                 .token = member.token,
                 .resumed = true});
  TellState(run, member, out);  // what was said meanwhile is lost
}

void Coordinator::Attach(Run& run, Member& member, SessionId session, Instant now) {
  const Node* node = &run.members.find(member.node)->first;
  member.session = session;
  member.seen_at = now;
  member.quiet = run.by_silence.insert(run.by_silence.end(), node);
  seats_[session] = {&run, &member};
}

void Coordinator::Detach(Run& run, Member& member) {
  const Node* node = &run.members.find(member.node)->first;
  if (member.session) {
    seats_.erase(*member.session);
    run.by_silence.erase(member.quiet);
    member.session.reset();
  } else {
    run.broken.erase({member.grace_ends, node});
  }
}

std::optional<Coordinator::Seat> Coordinator::Speaker(SessionKey key, Instant now, Pushes& out) {
  const auto seat = seats_.find(key.session);
  if (seat == seats_.end()) {
    out.push_back(Refusal(key.session,
                          "this session is over: its node is lost, or speaks through another one"));
    return std::nullopt;
  }
  auto [run, member] = seat->second;
  if (member->token != key.token) {
    out.push_back(Refusal(key.session, "the message is of another session of this node"));
    return std::nullopt;
  }
  member->seen_at = now;
  run->by_silence.splice(run->by_silence.end(), run->by_silence, member->quiet);
  return seat->second;
}

void Coordinator::Disconnect(SessionId session, Instant now) {
  const auto seat = seats_.find(session);
  if (seat == seats_.end()) return;
  auto [run, member] = seat->second;
  Detach(*run, *member);
  member->grace_ends = now + run->settings.grace;
  run->broken.insert({member->grace_ends, &run->members.find(member->node)->first});
  Reschedule(*run, now);
}

void Coordinator::KeepAlive(SessionKey key, Instant now, Pushes& out) {
  if (const auto seat = Speaker(key, now, out)) Reschedule(*seat->run, now);
}

// ----------------------------------------------------------------------------------------------
// what nodes ask for

void Coordinator::Join(SessionKey key, Duration timeout, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (member->joining) {
    out.push_back(
        Refusal(key.session, Concat("node '", member->node.ToString(), "' is joining already")));
    return;
  }
  if (run->state.participants.contains(member->node)) Withdraw(*run, *member, now, out);
  member->joining = true;
  member->join_timeout = timeout;
  SetDeadline(*run, *member, now + timeout);
  Advance(*run, *member, now, out);
  Reschedule(*run, now);
}

void Coordinator::Leave(SessionKey key, int64_t round, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (!member->joining && round != run->state.round) {
    out.push_back(
        Refusal(key.session, Concat("round ", round, " is not the present one of run '",
                                    Printable(run->id), "', which is ", run->state.round)));
    return;
  }
  StopJoining(*run, *member);
  Withdraw(*run, *member, now, out);
  out.push_back({.to = key.session, .kind = Push::Kind::kLeft, .round = round});
  Reschedule(*run, now);
}

void Coordinator::Close(SessionKey key, std::string_view reason, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  Run& run = *seat->run;
  if (!run.state.closed) {
    Apply(Action::kMarkClosed, seat->member->node, run.rules, Wall(now), &run.state);
    const std::string who = seat->member->node.ToString();
    run.state.closed_by = reason.empty() ? who : Concat(who, ": ", Printable(reason));
  }
  for (auto& [node, member] : run.members) {
    if (member.joining) {
      Advance(run, member, now, out);
    } else if (member.session) {
      out.push_back({.to = *member.session,
                     .kind = Push::Kind::kClosed,
                     .round = run.state.round,
                     .who = run.state.closed_by});
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
  while (member.joining) {
    const Decision decision = DecideJoin(Look(run, member, now));
    switch (decision.action) {
      case Action::kSync:
      case Action::kFinish:  // told when the round was completed
        return;
      case Action::kErrorClosed:
      case Action::kErrorGraceful:
        if (member.session) {
          out.push_back({.to = *member.session,
                         .kind = Push::Kind::kClosed,
                         .round = run.state.round,
                         .graceful = decision.action == Action::kErrorGraceful,
                         .who = run.state.closed_by});
        }
        return StopJoining(run, member);
      case Action::kErrorTimeout:
        if (member.session) {
          out.push_back({.to = *member.session,
                         .kind = Push::Kind::kTimedOut,
                         .round = run.state.round,
                         .count = static_cast<int64_t>(run.state.participants.size()),
                         .why = decision.reason});
        }
        return StopJoining(run, member);
      default:
        Do(run, member, decision.action, now, out);
    }
  }
}

void Coordinator::Do(Run& run, Member& member, Action action, Instant now, Pushes& out) {
  const Before before{run.state.complete, run.state.participants.size(),
                      run.state.wait_list.size()};
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
  } else if (before.complete && !run.state.complete) {
    run.told_waiting = 0;
    AdvanceAll(run, std::set<Node>(run.state.redundancy_list), now, out);
    AdvanceAll(run, std::set<Node>(run.state.wait_list), now, out);
  } else if (run.state.complete && run.state.participants.size() < before.participants) {
    AdvanceAll(run, std::set<Node>(run.state.redundancy_list), now, out);
  }
  if (run.state.complete && run.state.wait_list.size() != before.waiting) TellWaiting(run, out);
}

void Coordinator::AdvanceAll(Run& run, const std::set<Node>& nodes, Instant now, Pushes& out) {
  for (const Node& node : nodes) Advance(run, run.members.at(node), now, out);
}

void Coordinator::Complete(Run& run, Pushes& out) {
  std::vector<Candidate> candidates;
  candidates.reserve(run.state.participants.size());
  for (const auto& [node, rank] : run.state.participants) {
    const Member& member = run.members.at(node);
    candidates.push_back(
        {.node = node,
         .label = member.label,
         .rank_before = member.place ? std::optional(member.place->rank) : std::nullopt});
  }
  const std::vector<int64_t> ranks = AssignRanks(run.settings.policy, candidates);
  size_t index = 0;
  for (auto& [node, rank] : run.state.participants) {
    rank = ranks[index++];
    Member& member = run.members.at(node);
    member.place = Place{.round = run.state.round, .rank = rank};
    if (rank == 0) {
      run.first = node;
      run.first_port = member.bootstrap_port;
    }
    StopJoining(run, member);
  }
  run.told_waiting = 0;
  for (const auto& [node, rank] : run.state.participants) TellState(run, run.members.at(node), out);
}

void Coordinator::SetDeadline(Run& run, Member& member, Instant deadline) {
  const Node* node = &run.members.find(member.node)->first;
  run.deadlines.erase({member.join_by, node});
  member.join_by = deadline;
  if (deadline != Instant::Never()) run.deadlines.insert({deadline, node});
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

void Coordinator::Lose(Run& run, Member& member, const std::string& why, Instant now, Pushes& out) {
  const Node lost = member.node;
  const bool was_in = run.state.complete && run.state.participants.contains(lost);
  const Before before{run.state.complete, run.state.participants.size(),
                      run.state.wait_list.size()};
  StopJoining(run, member);
  Detach(run, member);
  run.members.erase(lost);
  Purge({lost}, run.rules, &run.state);
  if (was_in) {
    for (const auto& [node, rank] : run.state.participants) {
      const Member& survivor = run.members.at(node);
      if (!survivor.session) continue;
      out.push_back({.to = *survivor.session,
                     .kind = Push::Kind::kLost,
                     .round = run.state.round,
                     .who = lost.ToString(),
                     .why = why});
    }
  }
  Follow(run, before, now, out);
}

// ----------------------------------------------------------------------------------------------
// what nodes are told

void Coordinator::TellState(const Run& run, const Member& member, Pushes& out) const {
  if (!member.session) return;
  const RendezvousState& state = run.state;
  Push push{.to = *member.session,
            .round = state.round,
            .count = static_cast<int64_t>(state.participants.size())};
  if (const auto place = state.participants.find(member.node); place != state.participants.end()) {
    push.kind = state.complete ? Push::Kind::kComplete : Push::Kind::kAdmitted;
    if (state.complete) {
      push.rank = place->second;
      push.world_size = state.WorldSize();
      push.addr = run.first.addr;
      push.port = run.first_port;
    }
  } else if (state.wait_list.contains(member.node)) {
    push.kind = Push::Kind::kWaiting;
  } else if (state.redundancy_list.contains(member.node)) {
    push.kind = Push::Kind::kSpare;
  } else {
    return;
  }
  out.push_back(std::move(push));
}

// Told when they become more than none, and whenever they have doubled: that is enough to go by,
// and not N times for each of them.
void Coordinator::TellWaiting(Run& run, Pushes& out) {
  const auto waiting = static_cast<int64_t>(run.state.wait_list.size());
  if (waiting != 0 && run.told_waiting != 0 && waiting < 2 * run.told_waiting) return;
  if (waiting == run.told_waiting) return;
  run.told_waiting = waiting;
  for (const auto& [node, rank] : run.state.participants) {
    const Member& member = run.members.at(node);
    if (!member.session) continue;
    out.push_back({.to = *member.session,
                   .kind = Push::Kind::kNodesWaiting,
                   .round = run.state.round,
                   .count = waiting});
  }
}

// ----------------------------------------------------------------------------------------------
// time

Instant Coordinator::NextDueOf(const Run& run) {
  Instant due = run.forget_at;
  if (!run.by_silence.empty()) {
    const Member& quietest = run.members.at(*run.by_silence.front());
    due = std::min(due, quietest.seen_at + run.rules.dead_after() + kJustAfter);
  }
  if (!run.broken.empty()) due = std::min(due, run.broken.begin()->first);
  if (!run.deadlines.empty()) due = std::min(due, run.deadlines.begin()->first + kJustAfter);
  if (InLastCall(run.state)) {
    due = std::min(due, *run.observed.last_call_since() + run.rules.timeout.last_call + kJustAfter);
  }
  return due;
}

void Coordinator::Reschedule(Run& run, Instant now) {
  const bool over = run.members.empty();
  if (!over) run.forget_at = Instant::Never();
  if (over && run.forget_at == Instant::Never()) run.forget_at = now + options_.ended_kept;
  const Instant due = NextDueOf(run);
  if (due == run.due) return;
  due_.erase({run.due, &run});
  run.due = due;
  if (due != Instant::Never()) due_.insert({due, &run});
}

Instant Coordinator::NextDue() const {
  return due_.empty() ? Instant::Never() : due_.begin()->first;
}

void Coordinator::Tick(Instant now, Pushes& out) {
  while (!due_.empty() && due_.begin()->first <= now) {
    Run& run = *due_.begin()->second;
    if (run.forget_at <= now) {
      due_.erase(due_.begin());
      runs_.erase(runs_.find(run.id));
      continue;
    }
    TickRun(run, now, out);
    Reschedule(run, now);
    MUSTER_ASSERT(run.due > now);
  }
}

void Coordinator::TickRun(Run& run, Instant now, Pushes& out) {
  while (!run.broken.empty() && run.broken.begin()->first <= now) {
    Member& member = run.members.at(*run.broken.begin()->second);
    Lose(run, member, "its connection ended, and it did not come back", now, out);
  }
  while (!run.by_silence.empty()) {
    Member& member = run.members.at(*run.by_silence.front());
    if (now - member.seen_at <= run.rules.dead_after()) break;
    Lose(run, member, Concat("not heard of for ", Milliseconds(now - member.seen_at), " ms"), now,
         out);
  }
  if (InLastCall(run.state)) {  // which may be over
    Advance(run, run.members.at(run.state.participants.begin()->first), now, out);
  }
  while (!run.deadlines.empty() && run.deadlines.begin()->first < now) {
    Advance(run, run.members.at(*run.deadlines.begin()->second), now, out);
  }
}

}  // namespace muster
