#include "rendezvous/core/observation.h"

namespace muster {

void Observation::See(const RendezvousState& state, Instant now) {
  std::erase_if(beats_,
                [&](const auto& item) { return !state.last_heartbeats.contains(item.first); });
  for (const auto& [node, written] : state.last_heartbeats) {
    const auto [beat, is_new] = beats_.try_emplace(node, Beat{written, now});
    if (!is_new && beat->second.written != written) beat->second = {written, now};
  }
  SeeLastCall(state, now);
}

void Observation::SeeLastCall(const RendezvousState& state, Instant now) {
  if (state.deadline == last_call_) return;
  last_call_ = state.deadline;
  last_call_since_ = state.deadline ? std::optional(now) : std::nullopt;
}

void Observation::Skip(Duration gap) {
  for (auto& [node, beat] : beats_) beat.forgiven += gap;
}

std::set<Node> Observation::Silent(const RendezvousState& state, Duration dead_after,
                                   Instant now) const {
  std::set<Node> silent;
  for (const auto& [node, written] : state.last_heartbeats) {
    const auto beat = beats_.find(node);
    if (beat == beats_.end()) continue;
    if (now - beat->second.seen_at - beat->second.forgiven > dead_after) silent.insert(node);
  }
  return silent;
}

std::optional<Instant> Observation::LastSeen(const Node& node) const {
  const auto beat = beats_.find(node);
  return beat == beats_.end() ? std::nullopt : std::optional(beat->second.seen_at);
}

}  // namespace muster
