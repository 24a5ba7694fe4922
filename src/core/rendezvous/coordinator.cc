#include "core/rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/rendezvous/transitions.h"

namespace muster {

namespace {

// What is over at an instant is over just after it, as in the tables of operations.cc.
constexpr Duration kJustAfter = 1ns;

constexpr Duration kLostPause = 100ms;
constexpr size_t kNamesTold = 8;

WallTime Wall(Instant now) {
  return WallTime{std::chrono::duration_cast<std::chrono::microseconds>(now.since_start).count()};
}

int64_t Milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

bool InLastCall(const RendezvousState& state) {
  return state.deadline && !state.complete && !state.closed && !state.participants.empty();
}

Push Refuse(SessionId session, const Hello& hello, Push::Refusal refusal, std::string why) {
  return Refuse({.session = session, .token = hello.resume, .round = hello.round}, refusal,
                std::move(why));
}

bool IsLoopback(std::string_view addr) { return addr.starts_with("127.") || addr == "::1"; }

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options)
    : options_(options), prng_(options.seed) {}

const Coordinator::Run* Coordinator::Find(std::string_view run_id) const {
  const auto found = runs_.find(run_id);
  return found == runs_.end() ? nullptr : &found->second;
}

// ----------------------------------------------------------------------------------------------
// sessions

Coordinator::Run* Coordinator::RunFor(const Hello& hello, SessionId session, Pushes& out) {
  const auto refuse = [&](Push::Refusal refusal, std::string why) {
    out.push_back(Refuse(session, hello, refusal, std::move(why)));
    return nullptr;
  };
  if (hello.run_id.empty()) {
    return refuse(Push::Refusal::kSettings,
                  "the run id is empty: it names the rendezvous and must not be");
  }
  const RunSettings& wanted = hello.settings;
  if (std::string why = wanted.Impossible(); !why.empty())
    return refuse(Push::Refusal::kSettings, std::move(why));
  const std::string& addr = hello.node.addr;
  if (addr.empty() || addr.size() > kNodeAddressBytesMax || Printable(addr, addr.size()) != addr) {
    return refuse(Push::Refusal::kSettings,
                  Concat("the address '", Printable(addr, 64),
                         "' of the node must be printable UTF-8 of at most ",
                         HumanBytes(kNodeAddressBytesMax)));
  }
  auto found = runs_.find(hello.run_id);
  if (found == runs_.end()) {
    if (runs_.size() >= options_.runs_max && !ended_.empty())
      Forget(*std::get<Run*>(*ended_.begin()));
    if (runs_.size() >= options_.runs_max) {
      return refuse(Push::Refusal::kLimit,
                    Concat("this server has ", runs_.size(), " runs already, its limit"));
    }
    found = runs_.try_emplace(hello.run_id).first;
    found->second.id = hello.run_id;
    found->second.serial = ++made_;
  }
  Run& run = found->second;
  if (run.members.empty() && !run.state.closed) {
    run.settings = wanted;
    run.settings_of = hello.node.ToString();
    run.rules = wanted.RulesOf(run.id);
  }
  if (wanted == run.settings || run.state.closed) return &run;
  return refuse(Push::Refusal::kSettings,
                Concat("node '", hello.node.ToString(), "' and node '", run.settings_of,
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
      out.push_back(Refuse(session, hello, Push::Refusal::kIdentity,
                           Concat("node '", hello.node.ToString(), "' of run '", Printable(run->id),
                                  "' has a session already: two nodes cannot be one")));
      return;
    }
    Lose(*run, {{&member, "it started anew"}}, now, out);
  }
  if (run->members.size() >= options_.nodes_per_run_max) {
    out.push_back(Refuse(session, hello, Push::Refusal::kLimit,
                         Concat("run '", Printable(run->id), "' has ", run->members.size(),
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
  member.serial = ++made_;
  member.label = hello.label;
  member.bootstrap_port = hello.bootstrap_port;
  member.token = std::max<uint64_t>(prng_.Next(), 1);
  if (!hello.server_addr.empty() && !IsLoopback(hello.server_addr))
    run.server_addr = hello.server_addr;
  // A server that was started anew must not give a round's number a second time: workers of the
  // first may still be there, and their keys.
  if (!run.state.complete) run.state.round = std::max(run.state.round, hello.round + 1);
  Attach(run, member, session, now);
  Tell(run, member, {.kind = Push::Kind::kOpened, .addr = member.node.addr}, out);
}

void Coordinator::Resume(Run& run, Member& member, SessionId session, Instant now, Pushes& out) {
  // The old connection may not have noticed yet that it is one.
  Tell(run, member,
       {.kind = Push::Kind::kEnded, .why = "the node has taken up its session elsewhere"}, out);
  Detach(run, member);
  Attach(run, member, session, now);
  ++member.incarnation;
  Tell(run, member, {.kind = Push::Kind::kOpened, .resumed = true, .addr = member.node.addr}, out);
  // What was said meanwhile is lost.
  TellState(run, member, out);
  const bool is_in = run.state.complete && run.state.participants.contains(member.node);
  if (is_in && run.told_waiting > 0)
    Tell(run, member, {.kind = Push::Kind::kNodesWaiting, .count = run.told_waiting}, out);
  if (run.state.closed)
    TellClosed(run, member, out, run.state.redundancy_list.contains(member.node));
}

void Coordinator::Attach(Run& run, Member& member, SessionId session, Instant now) {
  member.session = session;
  member.seen_at = now;
  member.quiet = run.by_silence.insert(run.by_silence.end(), &member);
  seats_[session] = {&run, &member};
}

void Coordinator::Detach(Run& run, Member& member) {
  if (member.session) {
    seats_.erase(*member.session);
    run.by_silence.erase(member.quiet);
    member.session.reset();
  } else {
    run.broken.erase({member.grace_ends, member.serial, &member});
  }
}

std::optional<Coordinator::Seat> Coordinator::Speaker(const SessionKey& key, Instant now,
                                                      Pushes& out) {
  const auto seat = seats_.find(key.session);
  if (seat == seats_.end()) {
    out.push_back(Refuse(key, Push::Refusal::kPast,
                         "this session is over: its node is lost, or speaks through another one"));
    return std::nullopt;
  }
  auto [run, member] = seat->second;
  if (member->token != key.token || member->incarnation != key.incarnation) {
    out.push_back(
        Refuse(key, Push::Refusal::kPast,
               Concat("the message is of another session of node '", member->node.ToString(),
                      "', or of the time before this one was taken up again")));
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
  run->broken.insert({member->grace_ends, member->serial, member});
  Reschedule(*run, now);
}

// What is due can only be later now. That is found out when it would have been due: nine of ten
// messages are keep-alives.
void Coordinator::KeepAlive(SessionKey key, Instant now, Pushes& out) { Speaker(key, now, out); }

// ----------------------------------------------------------------------------------------------
// what nodes ask for

void Coordinator::Join(SessionKey key, Duration timeout, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (member->joining) return TellState(*run, *member, out);  // said twice, as it was not sure
  if (run->state.participants.contains(member->node)) {
    if (member->place && key.round < member->place->round) {
      out.push_back(Refuse(key, Push::Refusal::kPast,
                           Concat("node '", member->node.ToString(), "' is in round ",
                                  member->place->round, " already, and has not heard of it")));
      return TellState(*run, *member, out);
    }
    Withdraw(*run, *member, now, out);
  }
  member->joining = true;
  member->join_timeout = timeout;
  SetDeadline(*run, *member, now + timeout);
  Advance(*run, *member, now, out);
  Reschedule(*run, now);
}

void Coordinator::Leave(SessionKey key, Instant now, Pushes& out) {
  const auto seat = Speaker(key, now, out);
  if (!seat) return;
  auto [run, member] = *seat;
  if (!member->joining && key.round != run->state.round) {
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
    run.lost.clear();
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
      run.first_addr = AddressOfFirst(run, node);
      run.first_port = member.bootstrap_port;
    }
    StopJoining(run, member);
  }
  run.told_waiting = 0;
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
  const Before before{run.state.complete, run.state.participants.size(),
                      run.state.wait_list.size()};
  std::set<Node> lost;
  for (const auto& [member, why] : losses) {
    Tell(run, *member, {.kind = Push::Kind::kEnded, .why = why}, out);
    if (run.state.complete && run.state.participants.contains(member->node)) {
      if (run.lost.empty()) run.lost_why = why;
      run.lost.push_back(member->node.ToString());
    }
    StopJoining(run, *member);
    Detach(run, *member);
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
Instant Coordinator::TellLostAt(const Run& run) {
  return run.lost.empty() ? Instant::Never() : run.told_lost + kLostPause;
}

void Coordinator::TellLost(Run& run, Instant now, Pushes& out) {
  run.told_lost = now;
  const std::vector<std::string> lost = std::exchange(run.lost, {});
  const Push push{.kind = Push::Kind::kLost,
                  .count = static_cast<int64_t>(lost.size()),
                  .who = ListOf(lost, kNamesTold),
                  .why = run.lost_why};
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

// Told when they become more than none, and whenever they have doubled: that is enough to go by,
// and not N times for each of them.
void Coordinator::TellWaiting(Run& run, Pushes& out) {
  const auto waiting = static_cast<int64_t>(run.state.wait_list.size());
  if (waiting != 0 && run.told_waiting != 0 && waiting < 2 * run.told_waiting) return;
  if (waiting == run.told_waiting) return;
  run.told_waiting = waiting;
  for (const auto& [node, rank] : run.state.participants) {
    Tell(run, run.members.at(node), {.kind = Push::Kind::kNodesWaiting, .count = waiting}, out);
  }
}

// ----------------------------------------------------------------------------------------------
// time

Instant Coordinator::LastCallEnds(const Run& run) {
  return *run.observed.last_call_since() + run.rules.timeout.last_call;
}

Instant Coordinator::NextDueOf(const Run& run) {
  Instant due = std::min(run.forget_at, TellLostAt(run));
  if (!run.by_silence.empty()) {
    due = std::min(due, run.by_silence.front()->seen_at + run.rules.dead_after() + kJustAfter);
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
  }
  const Instant due = NextDueOf(run);
  if (due == run.due) return;
  due_.erase({run.due, run.serial, &run});
  run.due = due;
  if (due != Instant::Never()) due_.insert({due, run.serial, &run});
}

void Coordinator::Forget(Run& run) {
  due_.erase({run.due, run.serial, &run});
  ended_.erase({run.forget_at, run.serial, &run});
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
    losses.push_back({due.member, "its connection ended, and it did not come back"});
  }
  for (Member* member : run.by_silence) {
    const Duration silence = now - member->seen_at;
    if (silence <= run.rules.dead_after()) break;
    losses.push_back({member, Concat("not heard of for ", Milliseconds(silence), " ms")});
  }
  Lose(run, losses, now, out);
  if (TellLostAt(run) <= now) TellLost(run, now, out);
  // Who is first may find that its own time is over, too, and leave that to the next.
  while (InLastCall(run.state) && LastCallEnds(run) < now) {
    Advance(run, run.members.at(run.state.participants.begin()->first), now, out);
  }
  while (!run.deadlines.empty() && run.deadlines.begin()->at < now) {
    Advance(run, *run.deadlines.begin()->member, now, out);
  }
}

void Coordinator::Excuse(Duration gap, Instant now) {
  for (auto& [id, run] : runs_) {
    for (Member* member : run.by_silence) member->seen_at = std::min(member->seen_at + gap, now);
    std::set<Due> broken;
    for (Due due : run.broken) {
      due.at = due.member->grace_ends = due.at + gap;
      broken.insert(due);
    }
    run.broken.swap(broken);
  }
}

// ----------------------------------------------------------------------------------------------
// for whoever asks

std::vector<std::string> Coordinator::RunIds() const {
  std::vector<std::string> ids;
  for (const auto& [id, run] : runs_) ids.push_back(id);
  return ids;
}

std::optional<RunReport> Coordinator::Report(std::string_view run_id, size_t names_max,
                                             Instant now) const {
  const Run* run = Find(run_id);
  if (run == nullptr) return std::nullopt;
  return ReportOn(*run, names_max, now);
}

}  // namespace muster
