// An agent that behaves as a launcher would: it joins, works, reacts to its handler's events, joins
// again.
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

/// Of one node, in the world's etcd.
std::unique_ptr<RendezvousHandler> MakeEtcdHandler(World& world, size_t index, SimProcess& process);
/// Of one node, at the server of the world.
std::unique_ptr<RendezvousHandler> MakeCoordinatedHandler(const Plan& plan, size_t index,
                                                          SimProcess& process);

class Agent {
 public:
  enum class Stage {
    kStarting,
    kJoining,
    kWorking,
    kEnded,  ///< The rendezvous is closed, or has no use for it.
  };

  Agent(World& world, SimProcess& process, size_t index, bool is_torch_node, uint64_t seed);

  /// The body of its process.
  void Main();

  Stage stage() const { return stage_; }
  int64_t round() const { return round_; }
  int64_t world_size() const { return world_size_; }
  const std::string& last_error() const { return last_error_; }
  Node node() const { return node_; }
  /// Not of nodes of a shared document.
  Inbox ear() const;
  /// The network has just delivered the message that it is out of its round. `round`: which, also
  /// if its call for it has not returned yet.
  void NotifiedOut(int64_t round);

 private:
  std::unique_ptr<RendezvousHandler> MakeHandler();
  /// Whether there may be another round.
  bool Join(RendezvousHandler& handler);
  void Work(RendezvousHandler& handler);
  /// Waits for something to happen; whether it is time for the next round.
  bool Await(RendezvousHandler& handler);
  /// What an agent may do by itself; whether it does.
  bool ActOnItsOwn(RendezvousHandler& handler);
  bool WorkersFail();
  /// Of an event that may wait: whether it is time to act on it.
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
  RendezvousHandler* handler_ = nullptr;  ///< While it works.
  WorldTime looks_at_{};                  ///< When it next handles its events.
  bool lost_ = false;                     ///< Its handler is of no use any more.
  std::string last_error_;
};

}  // namespace muster::sim
