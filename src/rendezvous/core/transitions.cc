// Applies actions to the state: the second half of operations.h.
#include "base/assert.h"
#include "base/instrumented.h"
#include "rendezvous/core/operations.h"

namespace muster {

namespace {

int64_t Count(const RendezvousState& state) {
  return static_cast<int64_t>(state.participants.size());
}

void Complete(RendezvousState* state) {
  state->complete = true;
  state->deadline.reset();
  int64_t rank = 0;
  for (auto& [node, its_rank] : state->participants) its_rank = rank++;
  state->completion = {.round = state->round, .world_size = rank};
}

// Removes the node from the list that it is in. Returns whether it was a participant.
bool Remove(const Node& node, RendezvousState* state) {
  state->last_heartbeats.erase(node);
  state->wait_list.erase(node);
  state->redundancy_list.erase(node);
  return state->participants.erase(node) > 0;
}

// A participant was removed. A complete round ends with its last member, not with the first that
// leaves: the others keep working in it. A forming round below its minimum no longer has a last
// call.
void AfterRemoval(const RunSettings& settings, RendezvousState* state) {
  if (state->complete) {
    if (!state->participants.empty()) return;
    state->complete = false;
    state->completion.reset();
    if (!Planted(Bug::kRoundNotCounted)) ++state->round;
  } else if (Count(*state) < settings.min_nodes) {
    if (state->deadline) MUSTER_PROBE("a last call was called off");
    state->deadline.reset();
  }
}

void AddToParticipants(const Node& self, const RunSettings& settings, WallTime now,
                       RendezvousState* state) {
  state->wait_list.erase(self);
  state->participants[self] = 0;
  state->last_heartbeats[self] = now;
  const int64_t enough = settings.min_nodes - (Planted(Bug::kLastCallOffByOne) ? 1 : 0);
  const int64_t most = settings.max_nodes + (Planted(Bug::kOneTooMany) ? 1 : 0);
  if (Count(*state) == enough) state->deadline = now + settings.last_call;
  if (Count(*state) == most) Complete(state);
}

}  // namespace

void Apply(Action action, const Node& self, const RunSettings& settings, WallTime now,
           RendezvousState* state) {
  switch (action) {
    case Action::kKeepAlive:
      if (Planted(Bug::kClosedForgotten)) state->closed = false;
      state->last_heartbeats[self] = now;
      return;
    case Action::kAddToParticipants:
      return AddToParticipants(self, settings, now, state);
    case Action::kAddToWaitList:
      state->redundancy_list.erase(self);
      state->wait_list.insert(self);
      state->last_heartbeats[self] = now;
      return;
    case Action::kAddToRedundancyList:
      state->redundancy_list.insert(self);
      state->last_heartbeats[self] = now;
      return;
    case Action::kRemoveFromParticipants:
    case Action::kRemoveFromWaitList:
    case Action::kRemoveFromRedundancyList:
      if (Remove(self, state)) AfterRemoval(settings, state);
      return;
    case Action::kMarkComplete:
      return Complete(state);
    case Action::kMarkClosed:
      state->closed = true;
      return;
    default:
      MUSTER_ASSERT(false && "this action changes nothing");
  }
}

void Restore(const Node& self, int64_t rank, WallTime now, RendezvousState* state) {
  MUSTER_ASSERT(state->complete);
  state->participants[self] = rank;
  state->last_heartbeats[self] = now;
}

void Purge(const std::set<Node>& silent, const RunSettings& settings, RendezvousState* state) {
  bool lost_participant = false;
  for (const Node& node : silent) lost_participant |= Remove(node, state);
  if (lost_participant) AfterRemoval(settings, state);
}

}  // namespace muster
