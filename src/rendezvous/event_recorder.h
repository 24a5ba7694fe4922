// Builds the events of a rendezvous and passes them to a sink, or does nothing if there is none.
// Any thread. Nothing here throws: a rendezvous must not fail because of its log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "muster/rendezvous_events.h"
#include "rendezvous/core/node.h"

namespace muster {

/// An event's name in two parts, concatenated only if there is a sink.
struct EventName {
  EventName(const char* whole) : last(whole) {}  // NOLINT: implicit
  EventName(std::string_view group, std::string_view its_last) : first(group), last(its_last) {}

  std::string_view first{};
  std::string_view last;
};

class EventRecorder {
 public:
  /// `own` null: the sink that the process has at the time of each event. `hostname` is that of
  /// events without a node; empty: this machine's full name, which is looked up only when such an
  /// event is delivered, because that may take long.
  EventRecorder(RendezvousEventSink own, std::string run_id, std::string hostname = "");

  /// Whether there is a sink. Cheap: without a sink of its own, one atomic load.
  bool enabled() const;

  /// Records what a node does: "node 'a_1_0' has closed rendezvous 'run'", of "has closed". Here
  /// and below, the pieces of the text are concatenated only if there is a sink.
  template <typename... What>
  void Record(const EventName& name, NodeState state, const Node& node, const What&... what) const {
    Report(name, state, &node, std::nullopt, [&] { return Sentence(node, Concat(what...)); });
  }

  /// Records that the node is in a round, with this rank.
  void RecordJoined(const EventName& name, const Node& node, int64_t rank, int64_t world_size,
                    int64_t round) const {
    Report(name, NodeState::kRunning, &node, rank, [&] {
      return Sentence(node,
                      Concat("is rank ", rank, " of ", world_size, " in round ", round, " of"));
    });
  }

  /// Records what this process does, without a node.
  template <typename... What>
  void RecordOfProcess(const EventName& name, NodeState state, const What&... what) const {
    Report(name, state, nullptr, std::nullopt, [&] { return Concat(what...); });
  }

  /// Records a failure of `node`, or of this process if that is null.
  void RecordFailure(const EventName& name, const Node* node, const std::string& what) const {
    Report(name, NodeState::kFailed, node, std::nullopt, [&] { return what; });
  }

 private:
  void Report(const EventName& name, NodeState state, const Node* node, std::optional<int64_t> rank,
              const auto& make) const {
    if (!enabled()) return;
    try {
      RendezvousEvent event;
      event.message = make();
      event.node_state = state;
      event.rank = rank;
      Deliver(name, node, std::move(event));
    } catch (...) {
      // The sink throws, or there is no memory for a message: the rendezvous is more important.
    }
  }

  std::string Sentence(const Node& node, std::string_view what) const;
  void Deliver(const EventName& name, const Node* node, RendezvousEvent event) const;

  const RendezvousEventSink own_;
  const std::string run_id_;
  const std::string hostname_;
};

}  // namespace muster
