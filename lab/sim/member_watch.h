// What the members of a complete round must know: whom it has lost, and whether nodes wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "muster/rendezvous_handler.h"
#include "rendezvous/core/coordinator.h"
#include "sim/checkers.h"
#include "sim/plan.h"
#include "sim/scheduler.h"

namespace muster::sim {

/// What a node knows of its round, through its handler.
struct Ear {
  int64_t round = -1;      ///< That it works in; -1: none.
  bool listens = false;    ///< It is in AwaitEvent().
  std::string lost{};      ///< All whose loss it has heard of in that round.
  int64_t waiting = 0;     ///< As NumNodesWaiting() says.
  bool knows_end = false;  ///< It was told that its place is lost, or the run closed.
  void Hear(const MembershipEvent& event);
};

/// Looks at the coordinator's state after every step of it. A member owes nothing while it is not
/// listening, or while the state of the network, its machine or the server keeps news from it: the
/// time begins anew when that is over.
class MemberWatch {
 public:
  MemberWatch(const Plan& plan, Checkers& checkers);

  /// How the member of the round can be reached; nullopt: not now.
  using EarOf = std::function<std::optional<Ear>(const Coordinator::Member&)>;
  void Look(Epoch epoch, const Coordinator::Run& run, WorldTime now, const EarOf& ear_of);

  /// Within this a member that can be reached hears of a loss, and NumNodesWaiting() is true: news
  /// for all are told at most ten times a second, and travel.
  Duration within() const { return within_; }

 private:
  struct Seat {
    uint64_t serial = 0;
    uint32_t incarnation = 0;
    std::map<std::string, WorldTime> unheard{};  ///< Losses, and since when they could be heard.
    std::optional<WorldTime> wrong_since{};      ///< What it says of those who wait,
    int64_t waiting = 0;                         ///< of whom there were so many.
  };
  void NoteLosses(const Coordinator::Run& run, WorldTime now);
  void CheckLosses(const Node& node, Seat& seat, const Ear& ear, WorldTime now);
  void CheckWaiting(const Node& node, Seat& seat, const Ear& ear, int64_t waiting, WorldTime now);

  const bool is_judged_;
  const Duration within_;
  Checkers& checkers_;
  Epoch epoch_ = 0;
  int64_t round_ = -1;
  std::map<Node, Seat> seats_;  ///< Of the members of that round.
};

}  // namespace muster::sim
