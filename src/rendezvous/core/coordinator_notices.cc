// What the coordinator sends to nodes. A message to all members of a round costs O(N): these are
// limited to ten a second for each kind.
#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "base/probe.h"
#include "rendezvous/core/coordinator.h"

namespace muster {

// At once; but where many nodes die one after the other, their losses are sent together.
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

// At once when there are any, and when there are none any more; in between only when their number
// has doubled: where a whole round joins again, 100,000 nodes would each receive 17 messages. Never
// twice within the pause: one node that joins and leaves in turn must not cost each member a
// message every time. After a round has re-formed, its members are left alone for a while, or until
// as many wait as are missing: the machines of a rack come back one after the other, and the job
// must not start again for each.
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
