#include "rendezvous/core/operations.h"

#include <algorithm>
#include <utility>

#include "base/instrumented.h"
#include "base/text.h"

namespace muster {

namespace {

int64_t Count(const Outlook& o) { return static_cast<int64_t>(o.state.participants.size()); }

bool Participates(const Outlook& o) { return o.state.participants.contains(o.self); }
bool Waits(const Outlook& o) { return o.state.wait_list.contains(o.self); }
bool IsSpare(const Outlook& o) { return o.state.redundancy_list.contains(o.self); }

bool Full(const Outlook& o) { return Count(o) >= o.settings.max_nodes; }

// Late: past the deadline. Hopeless: also past the time to clean up.
bool Late(const Outlook& o) { return o.now > o.deadline; }
bool Hopeless(const Outlook& o) { return o.now > o.deadline + kRollbackWindow; }

std::optional<Instant> LastCallEnds(const Outlook& o) {
  const auto since = o.observed.last_call_since();
  if (!o.state.deadline || !since) return std::nullopt;
  return *since + o.last_call.value_or(o.settings.last_call);
}

bool LastCallOver(const Outlook& o) {
  const auto ends = LastCallEnds(o);
  return ends && o.now > *ends;
}

bool MayComplete(const Outlook& o) {
  const int64_t enough = o.settings.min_nodes - (Planted(Bug::kLastCallOffByOne) ? 1 : 0);
  return Count(o) >= enough && Count(o) <= o.settings.max_nodes && LastCallOver(o);
}

bool RankTaken(const RendezvousState& state, int64_t rank) {
  return std::ranges::any_of(state.participants,
                             [rank](const auto& member) { return member.second == rank; });
}

std::string Here(const Outlook& o) {
  return Concat(Count(o), " of ", o.settings.max_nodes, " nodes");
}

// The next time at which this node's clock alone may change the decision: its heartbeat, its
// deadline, the last call.
Instant WakeAt(const Outlook& o) {
  Instant at = Instant::Never();
  const auto consider = [&](Instant when) {
    if (when > o.now) at = std::min(at, when);
  };
  consider(o.deadline);
  if (const auto seen = o.observed.LastSeen(o.self))
    consider(*seen + o.settings.keep_alive_interval);
  if (const auto ends = LastCallEnds(o)) consider(*ends);
  return at;
}

Decision Linger(const Outlook& o, std::string reason) {
  if (HeartbeatDue(o)) return {Action::kKeepAlive, std::move(reason)};
  return {Action::kSync, std::move(reason), WakeAt(o)};
}

// With more members than allowed (nodes were configured with different limits) there is no place
// either: a spare that left the list would return to it immediately, without end.
Decision DecideAsSpare(const Outlook& o) {
  if (Count(o) < o.settings.max_nodes)
    return {Action::kRemoveFromRedundancyList, "a place is free"};
  return Linger(o, "spare: the round is full");
}

Decision DecideWhenComplete(const Outlook& o) {
  if (Planted(Bug::kDoubleCompletion) && !Full(o)) return {Action::kAddToParticipants, "let in"};
  if (Waits(o)) return Linger(o, Concat("waiting for the end of round ", o.state.round));
  if (Full(o)) return {Action::kAddToRedundancyList, "the round is complete and full"};
  return {Action::kAddToWaitList, "the round is complete"};
}

Decision DecideWhenForming(const Outlook& o) {
  if (!Participates(o)) return {Action::kAddToParticipants, "the round is open"};
  if (MayComplete(o)) return {Action::kMarkComplete, Concat("last call expired with ", Here(o))};
  return Linger(
      o, Concat("round ", o.state.round, " has ", Here(o), ", needs ", o.settings.min_nodes));
}

// This node's round is complete, but the others have declared it lost. It may return only to an
// unchanged round: with a new member at its rank, or in a full round, two nodes would have one
// rank.
bool WasDeclaredLost(const Outlook& o) {
  return o.place && !o.state.closed && o.state.complete && o.state.round == o.place->round &&
         !Participates(o) && Count(o) < o.settings.max_nodes && !RankTaken(o.state, o.place->rank);
}

}  // namespace

bool LeftBehind(const RendezvousState& state, const Node& self, const Place& place) {
  if (state.round > place.round) return true;
  // The document was lost with its store, and other nodes have begun a new one.
  if (state.round < place.round) return !state.participants.empty() || !state.wait_list.empty();
  return state.round == place.round && state.complete && !state.participants.contains(self) &&
         RankTaken(state, place.rank);
}

bool HeartbeatDue(const Outlook& o) {
  const auto seen = o.observed.LastSeen(o.self);
  return o.state.last_heartbeats.contains(o.self) && seen &&
         o.now - *seen >= o.settings.keep_alive_interval;
}

// The join table: the first row that matches decides.
//
//   * J1-J2, closed: a spare ends gracefully, any other node with an error.
//   * J3-J5, a spare: leaves the list of spares as soon as a place is free.
//   * J6, complete with this node: done.
//   * J7-J9, past the deadline: the node removes itself first, then fails.
//   * J10-J12, complete without this node: it waits for the next round, or becomes a spare.
//   * J13-J17, forming: the node joins, and completes the round when the last call is over.
Decision DecideJoin(const Outlook& o) {
  if (o.state.closed && IsSpare(o)) return {Action::kErrorGraceful, "closed while a spare"};  // J1
  if (o.state.closed) return {Action::kErrorClosed, "closed"};                                // J2
  if (IsSpare(o)) return DecideAsSpare(o);  // J3 J4 J5
  if (o.state.complete && Participates(o)) return {Action::kFinish, "the round is complete"};  // J6
  if (Late(o) && !Hopeless(o) && Participates(o)) {                                            // J7
    return {Action::kRemoveFromParticipants, "too late: taking ourselves out"};
  }
  if (Late(o) && !Hopeless(o) && Waits(o)) {  // J8
    return {Action::kRemoveFromWaitList, "too late: taking ourselves out"};
  }
  if (Hopeless(o)) MUSTER_PROBE("it was too late to clean up");
  if (Late(o)) return {Action::kErrorTimeout, Concat("too late, with ", Here(o))};  // J9
  return o.state.complete ? DecideWhenComplete(o)                                   // J10-J12
                          : DecideWhenForming(o);                                   // J13-J17
}

Decision DecideExit(const Outlook& o) {
  if (!Participates(o)) return {Action::kFinish, "not a participant"};
  if (Late(o)) return {Action::kErrorTimeout, "too late to leave"};
  return {Action::kRemoveFromParticipants, "leaving"};
}

Decision DecideGiveUp(const Outlook& o) {
  if (!Participates(o) && !Waits(o) && !IsSpare(o)) return {Action::kFinish, "out of it"};
  if (Late(o)) return {Action::kErrorTimeout, "too late to clean up"};
  if (IsSpare(o)) return {Action::kRemoveFromRedundancyList, "no longer wanted"};
  if (Waits(o)) return {Action::kRemoveFromWaitList, "no longer wanted"};
  return {Action::kRemoveFromParticipants, "no longer wanted"};
}

Decision DecideClose(const Outlook& o) {
  if (o.state.closed) return {Action::kFinish, "already closed"};
  if (Late(o)) return {Action::kErrorTimeout, "too late to close"};
  return {Action::kMarkClosed, "closing"};
}

Decision DecideKeepAlive(const Outlook& o) {
  if (WasDeclaredLost(o)) {
    MUSTER_PROBE("a node that was declared lost came back");
    if (Late(o)) return {Action::kErrorTimeout, "declared lost, and too late to come back"};
    return {Action::kRestore, Concat("declared lost in round ", o.state.round, ": coming back")};
  }
  if (!HeartbeatDue(o)) return {Action::kFinish, "no heartbeat due"};
  if (Late(o)) return {Action::kErrorTimeout, "the heartbeat took too long"};
  return {Action::kKeepAlive, "heartbeat due"};
}

}  // namespace muster
