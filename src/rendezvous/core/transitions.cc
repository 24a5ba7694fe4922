#include "rendezvous/core/transitions.h"

#include "base/assert.h"
#include "base/planted.h"
#include "base/probe.h"

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
      state->participants.erase(self);
      state->last_heartbeats.erase(self);
      return AfterRemoval(settings, state);
    case Action::kRemoveFromWaitList:
      state->wait_list.erase(self);
      state->last_heartbeats.erase(self);
      return;
    case Action::kRemoveFromRedundancyList:
      state->redundancy_list.erase(self);
      state->last_heartbeats.erase(self);
      return;
    case Action::kMarkComplete:
      return Complete(state);
    case Action::kMarkClosed:
      state->closed = true;
      return;
    case Action::kRestore:
    case Action::kSync:
    case Action::kErrorClosed:
    case Action::kErrorTimeout:
    case Action::kErrorGraceful:
    case Action::kFinish:
      break;
  }
  MUSTER_ASSERT(false && "this action changes nothing");
}

void Restore(const Node& self, int64_t rank, WallTime now, RendezvousState* state) {
  MUSTER_ASSERT(state->complete);
  state->participants[self] = rank;
  state->last_heartbeats[self] = now;
}

void Purge(const std::set<Node>& silent, const RunSettings& settings, RendezvousState* state) {
  bool lost_participant = false;
  for (const Node& node : silent) {
    state->last_heartbeats.erase(node);
    state->wait_list.erase(node);
    state->redundancy_list.erase(node);
    lost_participant |= state->participants.erase(node) > 0;
  }
  if (lost_participant) AfterRemoval(settings, state);
}

}  // namespace muster
