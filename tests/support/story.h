// The vocabulary of the machine's tests.
#pragma once

#include <initializer_list>
#include <string>

#include "rendezvous/core/operations.h"
#include "rendezvous/core/run_settings.h"
#include "rendezvous/core/state.h"

namespace muster::testing {

inline constexpr Instant kStart{1000s};
inline constexpr WallTime kNoon{1'700'000'000'000'000};

inline Node Named(const std::string& name) { return {.addr = name, .pid = 1, .local_id = 0}; }

inline RunSettings MinMax(int64_t min, int64_t max) {
  return {.min_nodes = min, .max_nodes = max, .keep_alive_interval = 5s};
}

/// A state with these members, each with a heartbeat. Ranks as in a complete round.
inline RendezvousState With(std::initializer_list<const char*> members) {
  RendezvousState state;
  int64_t rank = 0;
  for (const char* member : members) {
    state.participants[Named(member)] = rank++;
    state.last_heartbeats[Named(member)] = kNoon;
  }
  return state;
}

inline RendezvousState Complete(RendezvousState state) {
  state.complete = true;
  return state;
}

inline RendezvousState Waiting(RendezvousState state, const char* name) {
  state.wait_list.insert(Named(name));
  state.last_heartbeats[Named(name)] = kNoon;
  return state;
}

inline RendezvousState Spare(RendezvousState state, const char* name) {
  state.redundancy_list.insert(Named(name));
  state.last_heartbeats[Named(name)] = kNoon;
  return state;
}

/// One node's view: it saw `state` first at kStart. Its operation's deadline is kStart + 100 s.
struct View {
  RendezvousState state;
  RunSettings rules;
  Node self = Named("a");
  std::optional<Place> place{};

  template <typename Decide>
  Action At(Duration after, Decide decide) const {
    Observation observed;
    observed.See(state, kStart);
    return decide(Outlook{.state = state,
                          .observed = observed,
                          .self = self,
                          .settings = rules,
                          .now = kStart + after,
                          .deadline = kStart + 100s,
                          .place = place})
        .action;
  }
  Action Join(Duration after = 0s) const { return At(after, DecideJoin); }
};

}  // namespace muster::testing
