// The events of a rendezvous: one record for each step, for a sink of the user's choice.
//
// Without a sink no record is built. docs/reference/events.md lists the events.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace muster {

enum class NodeState { kInit, kRunning, kSucceeded, kFailed };

struct RendezvousEvent {
  std::string name;  ///< "dynamic_rendezvous:DynamicRendezvousHandler.next_rendezvous"
  std::string run_id;
  std::string message;
  std::string hostname;  ///< The node's address; this machine's name if there is no node.
  int64_t pid = 0;
  NodeState node_state = NodeState::kRunning;
  std::string master_endpoint{};      ///< Always empty.
  std::optional<int64_t> rank{};      ///< Only for the event that the node has joined.
  std::optional<int64_t> local_id{};  ///< Where there is a node.
  std::string error_trace{};          ///< Only for failures: what failed, and where.

  /// One JSON object, its keys in the order of the fields, with the blanks of Python's json module:
  /// the same bytes as torchelastic's events.
  std::string ToJson() const;
  bool operator==(const RendezvousEvent&) const = default;
};

/// Called on the thread where it happens; must not block for long, must not throw.
using RendezvousEventSink = std::function<void(const RendezvousEvent&)>;

/// Ready-made sinks: JSON lines. A separate thread writes them to standard error; without a reader
/// they are dropped. Lines are appended to the file one by one; std::runtime_error if it cannot be
/// opened.
RendezvousEventSink EventsToStderr();
RendezvousEventSink EventsToFile(const std::string& path);

/// The sink of everything in this process that has no sink of its own. Null (as at the start):
/// none.
void SetRendezvousEventSink(RendezvousEventSink sink);

}  // namespace muster
