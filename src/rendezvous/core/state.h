// The state of a rendezvous: what all its nodes agree on. A value; whoever drives it says how it is
// agreed.
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
  std::map<Node, int64_t>
      participants{};          ///< With ranks, which mean something once the round is complete.
  std::set<Node> wait_list{};  ///< Came to a complete round with room; want the next.
  std::set<Node> redundancy_list{};            ///< Came to a full one: spares.
  std::map<Node, WallTime> last_heartbeats{};  ///< Of exactly the nodes in the three above.
  /// Who closed it, and why: "host_4711_0: workers failed". Empty if nobody said; PyTorch's agents
  /// do not, but hand it on.
  std::string closed_by{};
  /// How many ranks a complete round has, said by whoever completed it: members may leave it before
  /// others have looked. PyTorch's agents say nothing, but hand it on, also when it is out of date.
  struct Completion {
    int64_t round = 0;
    int64_t world_size = 0;
    bool operator==(const Completion&) const = default;
  };
  std::optional<Completion> completion{};

  /// Attributes that a newer peer has added, kept for it: name and value, the latter as the bytes
  /// that stood for it. Nothing here is understood, and nothing is lost.
  std::map<std::string, std::string> unknown{};
  std::map<Node, std::map<std::string, std::string>> unknown_of_nodes{};
  /// Times were written without a zone: by PyTorch up to 2.5, which cannot read ours, nor we
  /// theirs.
  bool naive_times = false;

  /// Of the present round, which is complete.
  int64_t WorldSize() const {
    const bool told = completion && completion->round == round;
    return told ? completion->world_size : static_cast<int64_t>(participants.size());
  }

  bool operator==(const RendezvousState&) const = default;
};

}  // namespace muster
