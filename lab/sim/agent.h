// An agent that behaves as a launcher would: it joins, works, reacts to its handler's events, and
// joins again.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "base/prng.h"
#include "muster/rendezvous_handler.h"
#include "rendezvous/core/node.h"
#include "sim/member_watch.h"
#include "sim/process.h"

namespace muster::sim {

class World;
struct Plan;

/// A node's handler, in the world's etcd.
std::unique_ptr<RendezvousHandler> MakeEtcdHandler(World& world, size_t index, SimProcess& process);
/// A node's handler, at the server of the world.
std::unique_ptr<RendezvousHandler> MakeCoordinatedHandler(const Plan& plan, size_t index,
                                                          SimProcess& process);

class Agent {
 public:
  enum class Stage {
    kStarting,
    kJoining,
    kWorking,
    kEnded,  ///< The rendezvous is closed, or does not need this node.
  };

  Agent(World& world, SimProcess& process, size_t index, bool is_torch_node, uint64_t seed);

  /// The body of its process.
  void Main();

  Stage stage() const { return stage_; }
  int64_t round() const { return round_; }
  int64_t world_size() const { return world_size_; }
  const std::string& last_error() const { return last_error_; }
  Node node() const { return node_; }
  /// Not for nodes of a shared document.
  Inbox inbox() const;
  /// The network has just delivered the message that the node is out of its round. `round`: which
  /// one, also if the call that joins it has not returned yet.
  void NotifiedOut(int64_t round);

 private:
  std::unique_ptr<RendezvousHandler> MakeHandler();
  /// Returns whether there may be another round.
  bool Join(RendezvousHandler& handler);
  void Work(RendezvousHandler& handler);
  /// Waits for an event. Returns whether it is time for the next round.
  bool Await(RendezvousHandler& handler);
  /// Something that an agent may do by itself. Returns whether it does.
  bool ActOnItsOwn(RendezvousHandler& handler);
  bool WorkersFail();
  /// For an event that may wait: whether it is time to act on it.
  bool HasLooked(RendezvousHandler& handler);
  void Trouble(const std::exception& error);
  void Rest(Duration longest);
  bool OneIn(uint64_t n) { return prng_.Below(n) == 0; }

  World& world_;
  SimProcess& process_;
  const size_t index_;
  const bool is_torch_node_;
  Prng prng_;
  Stage stage_ = Stage::kStarting;
  Node node_{};
  int64_t round_ = -1;
  int64_t world_size_ = 0;
  bool knew_closed_ = false;
  std::optional<WorldTime> out_since_;
  int64_t out_of_ = -1;  ///< The last round that it was notified to be out of.
  std::optional<WorldTime> incomplete_since_;
  Inbox inbox_{};
  RendezvousHandler* handler_ = nullptr;  ///< Set while it works.
  WorldTime looks_at_{};                  ///< When it handles its events next.
  bool lost_ = false;                     ///< Its handler cannot be used any more.
  std::string last_error_;
};

}  // namespace muster::sim
