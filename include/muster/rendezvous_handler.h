// RendezvousHandler: how a node joins a round, and what it receives there.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/rendezvous_error.h"
#include "muster/store.h"

namespace muster {

class Clock;

/// The address of the workers' store in a round (MASTER_ADDR and MASTER_PORT).
struct RendezvousStoreInfo {
  static constexpr std::string_view kMasterAddrKey = "MASTER_ADDR";
  static constexpr std::string_view kMasterPortKey = "MASTER_PORT";

  std::string master_addr;
  uint16_t master_port = 0;

  /// Rank 0 publishes `local_addr` (empty: this machine's name) and `server_port` (0: a port that
  /// is free now) in the store; every rank then reads them, waiting as long as the store allows.
  /// RendezvousStateError if the values are not an address and a port.
  static RendezvousStoreInfo Build(int64_t rank, Store& store, std::string_view local_addr,
                                   uint16_t server_port = 0);
  bool operator==(const RendezvousStoreInfo&) const = default;
};

/// A node's place in a round.
struct RendezvousInfo {
  /// For the nodes of this round; keys of other rounds are not visible.
  std::shared_ptr<Store> store;
  int64_t rank = 0;
  int64_t world_size = 0;
  int64_t round = 0;
  RendezvousStoreInfo bootstrap_store_info{};
};

/// Which nodes a rendezvous is waiting for, and why: a snapshot for people and dashboards.
struct WaitReport {
  enum class Phase {
    kIdle,       ///< No call is waiting here.
    kContact,    ///< The backend has not yet reported its state.
    kForming,    ///< Too few nodes yet.
    kLastCall,   ///< Enough nodes; more may join until the last call is over.
    kNextRound,  ///< Joined late: waiting for the members of a complete round to leave it.
    kSpare,      ///< The round is full; waiting for a place.
    kBootstrap,  ///< The round is complete; waiting for rank 0 to publish its store's address.
    kComplete,   ///< In a round.
    kClosed,
  };
  Phase phase = Phase::kIdle;
  std::string run_id{};
  int64_t round = 0;
  int64_t min_nodes = 0;
  int64_t max_nodes = 0;
  int64_t here = 0;                    ///< Nodes in the round.
  std::vector<std::string> joined{};   ///< The names of all or the first of these, in rank order.
  std::vector<std::string> waiting{};  ///< For the next one.
  std::vector<std::string> spares{};
  std::vector<std::string> expected{};  ///< Known, but not back from the last round.
  std::vector<std::string> silent{};    ///< Have missed a heartbeat.
  std::string trouble{};                ///< kContact: why this node cannot reach its backend.
  std::string first{};                  ///< kBootstrap: the round's rank 0, if it is known.
  int64_t awaited = 0;                  ///< Nodes that must still join, or (kNextRound) leave.
  std::optional<std::chrono::milliseconds> last_call_left{};
  /// kNextRound: the members are not notified of waiting nodes before this time has passed, because
  /// their round has just re-formed (if that is known).
  std::optional<std::chrono::milliseconds> held_left{};
  std::optional<std::chrono::milliseconds> held_for{};
  std::optional<std::chrono::milliseconds> time_left{};  ///< Until the waiting call times out.

  /// One sentence: "round 0: 3 of 4 nodes are here (a_1_0, b_7_0, c_9_0), 1 more is needed; gives
  /// up in 588 s".
  std::string ToString() const;
  bool operator==(const WaitReport&) const = default;
};

/// What happens to a round, or to this node's place in it, while its workers run.
struct MembershipEvent {
  enum class Kind {
    kMemberLost,    ///< `who` was lost, and `why`.
    kNodesWaiting,  ///< `waiting` nodes wait for the next round.
    kPlaceLost,     ///< This node is no longer in the round; the others continue. `why`.
    kClosed,        ///< The run was closed, by `who` if that is known.
  };
  Kind kind{};
  int64_t round = 0;
  int64_t waiting = 0;
  std::string who{};
  std::string why{};

  /// One sentence.
  std::string ToString() const;
  bool operator==(const MembershipEvent&) const = default;
};

/// One node's part in a rendezvous. One caller at a time, except DescribeWait(): any thread, any
/// time.
class RendezvousHandler {
 public:
  virtual ~RendezvousHandler() = default;
  RendezvousHandler(const RendezvousHandler&) = delete;
  RendezvousHandler& operator=(const RendezvousHandler&) = delete;

  virtual std::string GetBackend() const = 0;
  virtual std::string GetRunId() const = 0;

  /// The backend that does the work. It differs from GetBackend() if a handler of "muster" has
  /// found that its server has no coordinator (PyTorch's has none), and uses "c10d" instead.
  virtual std::string ActiveBackend() const { return GetBackend(); }
  /// Whether other calls may be made while one is in NextRendezvous() or AwaitEvent(). False after
  /// a fallback to "c10d".
  virtual bool AllowsConcurrentCalls() const { return false; }

  /// This node, as the others see it: "10.0.0.7_4711_83920571"; address, process id, and a number
  /// that distinguishes launchers with the same address and process id. "": the backend has no
  /// names.
  virtual std::string node() const { return ""; }

  /// Whether the others reach the rendezvous through this process, and lose it with it.
  virtual bool IsHost() const { return false; }

  /// Whether workers may use the store that this agent serves.
  virtual bool UseAgentStore() const { return false; }

  /// Leaves the present round, if any, and blocks until this node is in the next one. Throws any
  /// RendezvousError.
  virtual RendezvousInfo NextRendezvous() = 0;

  /// Whether the rendezvous is closed, as far as known here (up to a second old).
  virtual bool IsClosed() = 0;
  /// Closes the rendezvous, for all nodes and permanently; they receive `reason`.
  virtual void SetClosed(std::string_view reason) = 0;
  void SetClosed() { SetClosed(""); }

  /// Nodes that arrived late and wait for the next round: above 0, it is time for NextRendezvous().
  virtual int64_t NumNodesWaiting() = 0;

  /// Blocks until something happens, or until `time` has passed: nullopt. After any event it is
  /// time for NextRendezvous(), except after kClosed. Events of earlier rounds are dropped when a
  /// new one begins. Backends that are not notified of events poll every 200 ms, and detect only
  /// waiting nodes and the end.
  virtual std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time);
  /// The current AwaitEvent(), or else the next one, returns immediately, with or without an event.
  /// Any thread. False: this backend cannot; call AwaitEvent() with shorter times instead.
  virtual bool StopWaiting() { return false; }

  /// Releases this node's place in the round, and nothing else: the others continue.
  virtual void Leave() {}

  /// Ends this node's part in the rendezvous. Returns whether that succeeded.
  virtual bool Shutdown() = 0;

  virtual WaitReport DescribeWait() const { return {}; }

 protected:
  RendezvousHandler() = default;

  /// AwaitEvent() for backends that are not notified of events. `count_waiting`: how many nodes
  /// wait for a new round. InterruptedError.
  std::optional<MembershipEvent> PollForEvent(Clock& clock, std::chrono::milliseconds time,
                                              const std::function<int64_t()>& count_waiting);
  /// A new round begins.
  void ForgetEvents() { waiting_reported_ = 0; }

 private:
  int64_t waiting_reported_ = 0;  // by AwaitEvent()
  bool closed_reported_ = false;
};

using RendezvousHandlerPtr = std::unique_ptr<RendezvousHandler>;

}  // namespace muster
