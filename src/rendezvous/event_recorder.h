// Events of a rendezvous: builds them and hands them to a sink, or does nothing if there is none.
// Any thread. Nothing here throws: a rendezvous must not fail because of its log.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "muster/rendezvous_events.h"
#include "rendezvous/core/node.h"

namespace muster {

/// The origin of an event, where there is no node (yet).
struct EventOrigin {
  std::string hostname;
  int64_t pid = 0;
};

/// The node that an event is about, or none: a view of a Node, an optional one or std::nullopt,
/// valid within the call.
class EventNode {
 public:
  EventNode(std::nullopt_t) {}                   // NOLINT: implicit
  EventNode(const Node& node) : node_(&node) {}  // NOLINT: implicit
  EventNode(const std::optional<Node>& node) : node_(node ? &*node : nullptr) {}  // NOLINT

  const Node* get() const { return node_; }

 private:
  const Node* node_ = nullptr;
};

/// An event's name in two parts, concatenated only if there is a sink.
struct EventName {
  EventName(const char* whole) : last(whole) {}  // NOLINT: implicit
  EventName(std::string_view group, std::string_view its_last) : first(group), last(its_last) {}

  std::string_view first{};
  std::string_view last;
};

class EventRecorder {
 public:
  /// `own` null: the sink of the process, as it is at the time of each event. `origin` is called
  /// only when an event without a node is delivered: finding a machine's full name can take long.
  EventRecorder(RendezvousEventSink own, std::string run_id,
                std::function<EventOrigin()> origin = nullptr);

  /// Whether there is a sink. Cheap: without a sink of its own, one atomic load.
  bool enabled() const;

  /// Something happened. `make` returns the message; here and below it is called only if there is a
  /// sink. For failures use RecordFailure().
  template <typename MakeMessage>
  void Record(EventName name, NodeState state, EventNode node, const MakeMessage& make) const {
    Report(name, node, [&](RendezvousEvent& event) {
      event.message = make();
      event.node_state = state;
    });
  }

  /// For messages: "node 'a_1_0' has closed rendezvous 'run'", of "has closed".
  std::string Sentence(const Node& node, std::string_view what) const;

  /// The node is in a round, and this is its rank there.
  template <typename MakeMessage>
  void RecordJoined(EventName name, EventNode node, int64_t rank, const MakeMessage& make) const {
    Report(name, node, [&](RendezvousEvent& event) {
      event.message = make();
      event.rank = rank;
    });
  }

  /// Something failed. `make_trace` returns what failed, and where, as far as it is known; if it
  /// returns "", the event's name and message are used.
  template <typename MakeMessage, typename MakeTrace>
  void RecordFailure(EventName name, EventNode node, const MakeMessage& make,
                     const MakeTrace& make_trace) const {
    Report(name, node, [&](RendezvousEvent& event) {
      event.message = make();
      event.node_state = NodeState::kFailed;
      event.error_trace = make_trace();
    });
  }

  /// All that is known is what was thrown.
  void RecordFailure(EventName name, EventNode node, const std::string& what) const {
    const auto same = [&] { return what; };
    RecordFailure(name, node, same, same);
  }

 private:
  template <typename FillIn>
  void Report(const EventName& name, EventNode node, const FillIn& fill_in) const {
    if (!enabled()) return;
    try {
      RendezvousEvent event;
      fill_in(event);
      Deliver(name, node.get(), std::move(event));
    } catch (...) {
      // A sink that throws, or no memory for a message: the rendezvous matters more.
    }
  }

  void Deliver(const EventName& name, const Node* node, RendezvousEvent event) const;

  const RendezvousEventSink own_;
  const std::string run_id_;
  const std::function<EventOrigin()> origin_;
};

}  // namespace muster
