// The coordinator's sessions: which nodes are admitted, which node has sent a message, and what is
// sent to nodes.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/instrumented.h"
#include "base/limits.h"
#include "base/text.h"
#include "rendezvous/core/coordinator.h"

namespace muster {

namespace {

// What is wrong with what a node sends; empty: nothing.
std::string Impossible(const Hello& hello) {
  if (hello.run_id.empty()) return "the run id is empty: it names the rendezvous and must not be";
  if (std::string why = hello.settings.Impossible(); !why.empty()) return why;
  const std::string& addr = hello.node.addr;
  if (addr.empty() || addr.size() > kNodeNameBytesMax || Printable(addr, addr.size()) != addr) {
    return Concat("the address '", Printable(addr, 64),
                  "' of the node must be printable UTF-8 of at most ",
                  HumanBytes(kNodeNameBytesMax));
  }
  if (hello.label.size() > kNodeNameBytesMax) {
    return Concat("the label of node '", hello.node.ToString(), "' has ", hello.label.size(),
                  " bytes. Allowed: at most ", kNodeNameBytesMax);
  }
  return "";
}

// For planted bugs: the seat of the member with this token, whatever its session is.
auto SeatOfToken(auto& seats, uint64_t token) {
  return std::ranges::find_if(seats,
                              [&](const auto& each) { return each.second.member->token == token; });
}

std::string NoRoom() {
  return "this server has no memory left for more runs and nodes (an eighth of store_bytes_max)";
}

}  // namespace

// As measured, including their entries in sets and in the state of the round.
uint64_t Coordinator::CostOf(const std::string& run_id) { return 1'500 + 3 * run_id.size(); }
uint64_t Coordinator::CostOf(const Node& node, const std::string& label) {
  return 700 + 4 * node.addr.size() + label.size();
}

Coordinator::Share Coordinator::ShareOf(const std::string& from) const {
  if (from.empty()) return {.runs = runs_.size(), .bytes = bytes_};
  const auto found = shares_.find(from);
  return found == shares_.end() ? Share{} : found->second;
}

bool Coordinator::HasMemoryFor(const std::string& from, uint64_t more) const {
  return Allows(options_.bytes_max, bytes_ + more, ShareOf(from).bytes + more);
}

void Coordinator::Charge(const std::string& from, int64_t runs, int64_t bytes) {
  if (!from.empty()) {
    Share& share = shares_[from];
    share.runs += static_cast<uint64_t>(runs);
    share.bytes += static_cast<uint64_t>(bytes);
    if (share.bytes == 0) shares_.erase(from);
  }
  bytes_ += static_cast<uint64_t>(bytes);
}

// A token and the generation of its run have these bits in common. The other 40 are secret.
constexpr uint64_t kRunBits = 0xffff'ff00'0000'0000;

// A client may request any id. The secret keeps it from requesting a key of a closed run.
std::string Coordinator::KeyOfClosed(const std::string& id, uint64_t of_run) const {
  return Concat(id, '\0', of_run & kRunBits, '\0', closed_secret_);
}

std::string Coordinator::KeyFor(const Hello& hello, Instant now) {
  const auto found = runs_.find(hello.run_id);
  const bool is_new = hello.resume == 0 && hello.round < 0;
  std::string closed = KeyOfClosed(hello.run_id, hello.resume);
  if (!is_new) {
    const bool is_of_this_one =
        found != runs_.end() && ((found->second.generation.run ^ hello.resume) & kRunBits) == 0;
    if (is_of_this_one) return hello.run_id;
    return runs_.contains(closed) || closed_runs_.Contains(closed, now) ? closed : hello.run_id;
  }
  if (found == runs_.end() || !found->second.state.closed || !found->second.by_silence.empty())
    return hello.run_id;
  closed = KeyOfClosed(hello.run_id, found->second.generation.run);
  // In etcd the leader decides when another run begins.
  if (!options_.judges_silence || runs_.contains(closed)) return hello.run_id;
  MUSTER_PROBE("a closed run was replaced by another one of its name");
  NoteUse(found->second, /*in_use=*/false);
  auto replaced = runs_.extract(found);
  replaced.key() = closed;
  replaced.mapped().is_replaced = true;
  runs_.insert(std::move(replaced));  // its address stays
  return hello.run_id;
}

Coordinator::Run& Coordinator::NewRun(const std::string& key, const std::string& id,
                                      const std::string& from) {
  Run& run = runs_[key];
  Charge(from, 1, static_cast<int64_t>(CostOf(id)));
  run.id = id;
  run.from = from;
  run.serial = ++made_;
  run.generation = {server_generation_, NewToken()};
  if (Planted(Bug::kGenerationReused)) run.generation = {1, 1};
  return run;
}

Coordinator::Run* Coordinator::RunFor(const Hello& hello, Instant now, const RefuseNode& refuse) {
  if (std::string why = Impossible(hello); !why.empty())
    return refuse(Push::Refusal::kSettings, std::move(why)), nullptr;
  RunSettings wanted = hello.settings;
  const std::string key = KeyFor(hello, now);
  auto found = runs_.find(key);
  if (found == runs_.end()) {
    EvictEnded(now);
    if (!Allows(options_.runs_max, runs_.size() + 1, ShareOf(hello.from).runs + 1)) {
      std::string why = Concat("this server has ", runs_.size(), " runs already, its limit");
      if (!ended_.empty())
        why += ", and remembers as many closed runs as it can: try again when the oldest expires";
      return refuse(Push::Refusal::kLimit, std::move(why)), nullptr;
    }
    if (!HasMemoryFor(hello.from, CostOf(hello.run_id) + CostOf(hello.node, hello.label)))
      return refuse(Push::Refusal::kLimit, NoRoom()), nullptr;
    Run& run = NewRun(key, hello.run_id, hello.from);
    if (key != hello.run_id) {  // it was evicted
      run.is_replaced = run.state.closed = true;
      run.state.closed_by = "a node of an earlier job of this name";
      run.generation.run = hello.resume;
      run.settings.keep_alive_interval = 5s;  // its own settings were forgotten with it
    }
    found = runs_.find(key);
  }
  Run& run = found->second;
  if (run.members.empty() && !run.state.closed) {
    run.settings = wanted;
    run.settings_of = hello.node.ToString();
  }
  RunSettings agreed = run.settings;
  agreed.Complete(wanted);
  wanted.Complete(agreed);
  if (run.state.closed) return &run;
  if (wanted == agreed) {
    run.settings = agreed;
    return &run;
  }
  refuse(Push::Refusal::kSettings,
         Concat("node '", hello.node.ToString(), "' and node '", run.settings_of, "' of run '",
                Printable(run.id), "' were configured differently: ", wanted.Against(agreed)));
  return nullptr;
}

void Coordinator::Open(SessionId session, const Hello& hello, Instant now, Pushes& out) {
  MUSTER_ASSERT(!seats_.contains(session));
  const auto refuse = [&](Push::Refusal refusal, std::string why) {
    out.push_back(Refuse({.session = session, .token = hello.resume, .round = hello.round}, refusal,
                         std::move(why)));
  };
  Run* run = RunFor(hello, now, refuse);
  if (run == nullptr) return;
  const auto known = run->members.find(hello.node);
  if (known != run->members.end()) {
    Member& member = known->second;
    if (hello.resume != 0 && hello.resume == member.token) {
      Resume(*run, member, session, now, out);
      return Reschedule(*run, now);
    }
    if (member.session) {
      MUSTER_PROBE("a node was refused, for its old self was still there");
      return refuse(
          Push::Refusal::kIdentity,
          Concat("node '", hello.node.ToString(), "' of run '", Printable(run->id),
                 "' has a session already. If these are two nodes (with the same address and "
                 "process id), give each of them its own --local-addr"));
    }
    MUSTER_PROBE("a node started anew while its old self had its grace");
    Lose(*run, {{&member, "it started anew"}}, now, out);
  }
  if (run->members.size() >= options_.nodes_per_run_max) {
    return refuse(Push::Refusal::kLimit,
                  Concat("run '", Printable(run->id), "' has ", run->members.size(),
                         " nodes already, the limit of this server"));
  }
  if (!HasMemoryFor(hello.from, CostOf(hello.node, hello.label)))
    return refuse(Push::Refusal::kLimit, NoRoom());
  OpenAnew(*run, session, hello, now, out);
  Reschedule(*run, now);
}

Coordinator::Member& Coordinator::NewMember(Run& run, const Hello& hello) {
  Member& member = run.members[hello.node];
  member.node = hello.node;
  member.serial = ++made_;
  member.label = hello.label;
  member.from = hello.from;
  Charge(member.from, 0, static_cast<int64_t>(CostOf(member.node, member.label)));
  member.bootstrap_port = hello.bootstrap_port;
  member.token = std::max<uint64_t>((run.generation.run & kRunBits) | (NewToken() & ~kRunBits), 1);
  return member;
}

void Coordinator::OpenAnew(Run& run, SessionId session, const Hello& hello, Instant now,
                           Pushes& out) {
  if (run.members.empty()) NoteUse(run, /*in_use=*/true);
  Member& member = NewMember(run, hello);
  member.version = std::min(hello.version, kSessionVersion);
  if (!hello.server_addr.empty() && !IsLoopback(hello.server_addr))
    run.server_addr = hello.server_addr;
  // For every node, rounds only grow, also after a restart of the server. A claim is limited, so
  // that no node can exhaust the numbers.
  if (hello.round + 1 > run.round_floor) MUSTER_PROBE("a node knew a later round than the server");
  run.round_floor = std::max(run.round_floor, std::min(hello.round + 1, kClaimedRoundMax));
  if (!run.state.complete) run.state.round = std::max(run.state.round, run.round_floor);
  Attach(run, member, session, now);
  Send(run, member, {.kind = Push::Kind::kOpened, .addr = member.node.addr}, out);
}

void Coordinator::Resume(Run& run, Member& member, SessionId session, Instant now, Pushes& out) {
  if (member.session) MUSTER_PROBE("a session was taken up again before the server missed it");
  if (member.joining) MUSTER_PROBE("a session was taken up again by a node that was joining");
  // The old connection may not be known to be broken yet.
  Send(
      run, member,
      {.kind = Push::Kind::kEnded, .why = "the node has resumed its session on another connection"},
      out);
  Detach(run, member);
  Attach(run, member, session, now);
  ++member.incarnation;
  SendAgain(run, member, out);
}

void Coordinator::SendAgain(const Run& run, const Member& member, Pushes& out) {
  Send(run, member, {.kind = Push::Kind::kOpened, .resumed = true, .addr = member.node.addr}, out);
  SendState(run, member, out);
  const bool is_in = run.state.complete && run.state.participants.contains(member.node);
  if (is_in && run.losses.count > 0)
    MUSTER_PROBE("a node was told on its return whom it had missed");
  if (is_in && run.losses.count > 0) Send(run, member, run.losses.ToPush(), out);
  if (is_in)  // also sent if no node waits any more
    Send(run, member, {.kind = Push::Kind::kNodesWaiting, .count = run.waiting_sent}, out);
  if (run.state.closed)
    SendClosed(run, member, out, run.state.redundancy_list.contains(member.node));
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

std::optional<Coordinator::Seat> Coordinator::SenderOf(const SessionKey& key, Instant now,
                                                       Pushes& out) {
  auto seat = seats_.find(key.session);
  if (Planted(Bug::kFencingIgnored)) seat = SeatOfToken(seats_, key.token);
  if (seat == seats_.end()) {
    if (Planted(Bug::kStaleKeepAlive)) {
      if (const auto other = SeatOfToken(seats_, key.token); other != seats_.end())
        other->second.member->seen_at = now;
    }
    MUSTER_PROBE("a message came through a session that was over");
    out.push_back(RefuseAsPast(key, "this session is over: its node is lost, or has another one"));
    return std::nullopt;
  }
  auto [run, member] = seat->second;
  const bool is_of_now = member->token == key.token && member->incarnation == key.incarnation;
  if (!is_of_now && !Planted(Bug::kFencingIgnored)) {
    out.push_back(RefuseAsPast(key, "the message is from another session of node '",
                               member->node.ToString(),
                               "', or was sent before this one was resumed"));
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
  member->grace_ends = options_.judges_silence ? now + run->settings.grace : now;
  if (!Planted(Bug::kGraceForever))
    run->broken.insert({member->grace_ends, member->serial, member});
  Reschedule(*run, now);
}

void Coordinator::ResumeRun(const ResumedRun& adopted, Instant now, Pushes& out) {
  MUSTER_ASSERT(Find(adopted.id) == nullptr);
  Run& run = NewRun(adopted.id, adopted.id, "");
  run.settings = adopted.settings;
  run.settings_of = adopted.settings_of;
  run.first_addr = adopted.first_addr;
  run.first_port = adopted.first_port;
  run.completed_round = adopted.round;
  run.round_floor = adopted.round + 1;
  RendezvousState& state = run.state;
  state.closed = adopted.closed;
  state.closed_by = adopted.closed_by;
  state.complete = !adopted.members.empty();
  state.round = state.complete ? adopted.round : run.round_floor;
  if (state.complete) state.completion = {.round = adopted.round, .world_size = adopted.world_size};
  for (const ResumedRun::Member& each : adopted.members) {
    Member& member = NewMember(run, each.hello);
    member.place = Place{.round = adopted.round, .rank = each.rank};
    state.participants[member.node] = each.rank;
    state.last_heartbeats[member.node] = WallTime{};
    if (each.session) {
      Attach(run, member, *each.session, now);
    } else {
      MUSTER_ETCD_PROBE("a member was lost while nobody led");
      member.grace_ends = now;
      run.broken.insert({now, member.serial, &member});
    }
  }
  for (const auto& [node, member] : run.members) SendAgain(run, member, out);
  Reschedule(run, now);
}

// The run's deadlines can only become later, so Reschedule() is left to the next Tick(): nine of
// ten messages are keep-alives.
void Coordinator::KeepAlive(SessionKey key, Instant now, Pushes& out) { SenderOf(key, now, out); }

// --- Notices. A message to all members of a round costs O(N): there are at most ten per second of
// each kind.

// The first loss is sent immediately; if many nodes die one after the other, their losses are sent
// together.
Instant Coordinator::LossesDueAt(const Run& run) const {
  return run.losses_unsent.count == 0 ? Instant::Never()
                                      : run.losses_sent_at + options_.notice_pause;
}

void Coordinator::NotifyLosses(Run& run, Instant now, Pushes& out) {
  if (run.losses_unsent.count > 1) MUSTER_PROBE("several losses were told at once");
  run.losses_sent_at = now;
  const Push push = std::exchange(run.losses_unsent, {}).ToPush();
  if (Planted(Bug::kLossUntold)) return;
  for (const auto& [node, rank] : run.state.participants)
    Send(run, run.members.at(node), push, out);
}

void Coordinator::Send(const Run& run, const Member& member, Push push, Pushes& out) {
  if (!member.session) return;
  push.to = *member.session;
  push.token = member.token;
  push.incarnation = member.incarnation;
  if (push.kind == Push::Kind::kOpened) push.version = member.version;
  if (push.kind != Push::Kind::kLeft) push.round = run.state.round;
  out.push_back(std::move(push));
}

void Coordinator::SendClosed(const Run& run, const Member& member, Pushes& out, bool graceful) {
  Send(run, member, {.kind = Push::Kind::kClosed, .graceful = graceful, .who = run.state.closed_by},
       out);
}

void Coordinator::SendState(const Run& run, const Member& member, Pushes& out) {
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
  Send(run, member, std::move(push), out);
}

// Members are notified immediately of the first waiting node, and when none waits any more; in
// between only when the number has doubled: if a whole round joins again, each of 100,000 nodes
// receives only 17 messages. There are never two messages within the pause: a node that alternately
// joins and leaves must not cost each member a message every time. After a round has re-formed, its
// members are not notified for a while, or until as many nodes wait as are missing: the machines of
// a rack return one after the other, and the job must not restart for each.
Instant Coordinator::WaitingDueAt(const Run& run) const {
  const auto waiting = static_cast<int64_t>(run.state.wait_list.size());
  if (!run.state.complete || waiting == run.waiting_sent) return Instant::Never();
  const bool has_doubled = waiting >= 2 * run.waiting_sent;
  if (waiting > 0 && !has_doubled) return Instant::Never();
  const Instant due = run.waiting_sent_at + options_.notice_pause;
  const bool are_held = run.waiting_sent == 0 && waiting < run.missing;
  return are_held ? std::max(due, run.held_until) : due;
}

void Coordinator::NotifyWaiting(Run& run, Instant now, Pushes& out) {
  run.waiting_sent = static_cast<int64_t>(run.state.wait_list.size());
  run.waiting_sent_at = now;
  if (run.waiting_sent > 0 && run.held_until != Instant{})
    MUSTER_PROBE("nodes that were held back were announced");
  if (Planted(Bug::kWaitingStale) && run.waiting_sent == 0) return;
  for (const auto& [node, rank] : run.state.participants) {
    Send(run, run.members.at(node), {.kind = Push::Kind::kNodesWaiting, .count = run.waiting_sent},
         out);
  }
}

}  // namespace muster
