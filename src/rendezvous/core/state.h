// The state of a rendezvous: what all its nodes agree on. A value; the drivers decide how nodes
// agree on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/time.h"
#include "rendezvous/core/node.h"

namespace muster {

struct RendezvousState {
  int64_t round = 0;
  bool complete = false;               ///< The round has its final members.
  std::optional<WallTime> deadline{};  ///< Set while the last call runs.
  bool closed = false;                 ///< No further round will ever form.
  /// With ranks, which are valid once the round is complete.
  std::map<Node, int64_t> participants{};
  /// Arrived when the round was complete but not full; wait for the next.
  std::set<Node> wait_list{};
  std::set<Node> redundancy_list{};            ///< Arrived when the round was full: spares.
  std::map<Node, WallTime> last_heartbeats{};  ///< Of exactly the nodes in the three members above.
  /// The node that closed it, and why: "host_4711_0: workers failed". Empty if unknown; PyTorch's
  /// agents do not write it, but preserve it.
  std::string closed_by{};
  /// How many ranks a complete round has, written by the node that completed it: members may leave
  /// before others have read the state. PyTorch's agents do not write it, but preserve it, also
  /// when it is out of date.
  struct Completion {
    int64_t round = 0;
    int64_t world_size = 0;
    bool operator==(const Completion&) const = default;
  };
  std::optional<Completion> completion{};

  /// Unknown attributes of newer peers, which are preserved: the name, and the bytes of the value.
  std::map<std::string, std::string> unknown{};
  std::map<Node, std::map<std::string, std::string>> unknown_of_nodes{};
  /// Times were written without a zone: by PyTorch up to 2.5, which cannot share a rendezvous with
  /// later versions or with muster.
  bool naive_times = false;

  /// The world size of the present round, which is complete.
  int64_t WorldSize() const {
    const bool is_known = completion && completion->round == round;
    return is_known ? completion->world_size : static_cast<int64_t>(participants.size());
  }

  bool operator==(const RendezvousState&) const = default;
};

}  // namespace muster
