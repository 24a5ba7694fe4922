// What the members of a complete round must know: which nodes the round has lost, and whether nodes
// wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "muster/rendezvous_handler.h"
#include "rendezvous/core/coordinator.h"
#include "sim/checkers.h"
#include "sim/plan.h"
#include "sim/scheduler.h"

namespace muster::sim {

/// What a node knows of its round, through its handler.
struct Inbox {
  int64_t round = -1;      ///< The round in which it works; -1: none.
  bool listens = false;    ///< It is in AwaitEvent().
  std::string lost{};      ///< All nodes whose loss in that round it was notified of.
  int64_t waiting = 0;     ///< The result of NumNodesWaiting().
  bool knows_end = false;  ///< It was notified that its place is lost, or the run closed.
  void Add(const MembershipEvent& event);
};

/// Looks at the coordinator's state after every step of it. Nothing is required of a member that is
/// not listening, or that the network, its machine or the server cannot reach. The time starts
/// again when that is over.
class MemberWatch {
 public:
  MemberWatch(const Plan& plan, Checkers& checkers);

  /// The inbox of a member of the round; nullopt: it cannot be reached now.
  using InboxOf = std::function<std::optional<Inbox>(const Coordinator::Member&)>;
  /// `at`: the same time by the server's clock. `is_free`: nothing hinders the server.
  void Look(Epoch epoch, const Coordinator::Run& run, WorldTime now, Instant at, bool is_free,
            const InboxOf& inbox_of);

  /// Within this time a reachable member is notified of a loss, and NumNodesWaiting() is correct:
  /// notices to all members are sent at most ten times a second, and travel.
  Duration within() const { return within_; }

 private:
  struct Seat {
    uint64_t serial = 0;
    uint32_t incarnation = 0;
    std::map<std::string, WorldTime>
        unnoticed{};  ///< Losses, and the time from which they could be received.
    std::optional<WorldTime> wrong_since{};  ///< Since when its NumNodesWaiting() has been wrong,
    int64_t waiting = 0;                     ///< and how many nodes waited.
  };
  void CheckForming(Epoch epoch, const Coordinator::Run& run, WorldTime now, bool is_free);
  void NoteLosses(const Coordinator::Run& run, WorldTime now);
  void CheckLosses(const Node& node, Seat& seat, const Inbox& inbox, WorldTime now);
  void CheckWaiting(const Node& node, Seat& seat, const Inbox& inbox, int64_t waiting,
                    WorldTime now);

  const bool is_small_;
  const bool is_judged_;
  const Duration within_;
  Checkers& checkers_;
  Epoch epoch_ = 0;
  int64_t round_ = -1;
  std::map<Node, Seat> seats_;  ///< Of the members of that round.
  Epoch forming_epoch_ = 0;
  int64_t forming_round_ = -1;
  std::set<uint64_t> last_;  ///< Of the last complete round: the members, by their serials.
  bool was_complete_ = false;
  bool reforms_ = false;
  std::optional<WorldTime> reforms_since_{};  ///< It could have formed again since.
  bool is_whole_ = false;                     ///< With all of them.
};

}  // namespace muster::sim
