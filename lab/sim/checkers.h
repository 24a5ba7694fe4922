// The promises that must hold at every step of every run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "muster/rendezvous_handler.h"
#include "rendezvous/core/node.h"
#include "rendezvous/core/state.h"
#include "sim/plan.h"
#include "sim/scheduler.h"
#include "sim/watch.h"

namespace muster::sim {

/// A life of the server: its knowledge ends with it.
using Epoch = uint32_t;

class Checkers {
 public:
  explicit Checkers(const Plan& plan)
      : settings_(plan.settings),
        has_torch_nodes_(plan.driver == Driver::kMixed),
        ranks_by_name_(!IsCoordinated(plan.driver)),
        few_nodes_(plan.nodes <= kFewNodes),
        goes_back_(plan.faults.restore) {}

  /// The state that all nodes share, after every step that may have changed it.
  void SeeState(Epoch epoch, const RendezvousState& state);
  /// A node's handler has returned from NextRendezvous(). `known_to`: the latest life of the server
  /// that it may mean.
  struct Joined {
    std::string who;
    Node node;
    bool is_torch_node;
    Epoch known_to;
    int64_t round_before;  ///< The last round of this process; -1: none.
    RendezvousInfo info;
  };
  /// Returns the life of the server whose round it is.
  std::optional<Epoch> SeeJoined(const Joined& joined);
  /// A node continues in a round, so long after it was notified that it is out of it.
  void SeeWork(const std::string& who, int64_t round, Duration out_for);
  void SeeClosed(const std::string& who, bool closed, bool& was_closed);
  /// A node receives a place.
  void SeePlace(const std::string& who, int64_t round, bool knew_closed);
  /// A message of an earlier connection: the picture of the run must not change.
  void SeeStale(const RunPicture& before, const RunPicture& after);

  void Violate(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  const std::string& violation() const { return violation_; }
  /// Rounds that were completed.
  size_t rounds() const { return rounds_.size(); }

 private:
  struct Round {
    std::map<Node, int64_t> ranks;
    Node first{};               ///< Rank 0.
    std::set<int64_t> sizes{};  ///< All sizes so far: PyTorch's nodes remove dead nodes from a
                                ///< round.
    std::optional<RendezvousStoreInfo> master{};
    std::map<int64_t, std::string> joined{};
  };

  void CheckMembers(const RendezvousState& state);
  void CheckCompleted(Epoch epoch, const RendezvousState& state);
  void CheckRunning(Epoch epoch, const RendezvousState& state);

  const RunSettings settings_;
  const bool has_torch_nodes_;  // they complete rounds without writing their size
  const bool ranks_by_name_;
  // With many nodes only cheap checks run at every step, and the others when a round is completed.
  const bool few_nodes_;
  const bool goes_back_;  // etcd may, and then a round of the same number is completed again
  std::string violation_;
  std::map<std::pair<Epoch, int64_t>, Round> rounds_;
  struct Seen {
    Epoch epoch = 0;
    int64_t round = -1;
    bool complete = false;
    bool closed = false;
    size_t participants = 0;
  };
  Seen last_;
};

}  // namespace muster::sim
