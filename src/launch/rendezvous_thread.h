// The launcher's voice in the rendezvous: a thread that joins, works out ranks with the other
// nodes, listens while the workers run, and meets the others at the exit. One call of its handler
// at a time; what it hears becomes events of the agent.
//
// The keys are those of PyTorch's agents, so that both can be nodes of one job. Its own begin with
// "muster/", and nobody needs them who does not know them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "launch/core/agent_machine.h"
#include "launch/core/ranks.h"
#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"

namespace muster {

/// A node's place in a round, and its workers'.
struct Placement {
  int64_t round = 0;
  int64_t group_rank = 0;  ///< Of the node.
  int64_t group_world_size = 1;
  AssignedRanks ranks{};
  RendezvousStoreInfo master{};
  Duration formed_in{};
};

struct RendezvousThreadOptions {
  NodeRole role{"default", 1};
  /// All nodes have the same role and as many workers: ranks need no exchange.
  bool are_identical = false;
  /// How long the rendezvous may be out of reach before the job is given up.
  Duration contact_max = 30s;
};

class RendezvousThread {
 public:
  /// `tell` is called on the attendant's thread.
  RendezvousThread(RendezvousThreadOptions options, RendezvousHandler& handler, System& around,
                   std::function<void(AgentEvent)> tell);
  /// Waits for what is under way.
  ~RendezvousThread();

  // What it is asked to do, in this order, later. Any thread.
  void Join();
  /// Reports `failure` to all nodes, unless another node has reported an earlier one. The node that
  /// reports first pays for the restart; a later correction changes only the report.
  void TellFailure(std::string failure);
  void EnterBarrier();
  void Close(std::string reason);
  void Leave();
  /// Nothing more will be asked.
  void Finish();

  /// Whether all that it was asked for is done; waits for it until then.
  bool IsDoneBy(Instant until);

  bool is_joining() const;
  /// Nothing is under way that could keep its destructor waiting.
  bool is_idle() const;
  /// Of the last kJoined.
  Placement placement() const;
  /// What another node has told as the first failure of the round; empty: nothing.
  std::string failure_elsewhere() const;

 private:
  using Task = std::function<void()>;
  using Lock = std::unique_lock<Monitor>;

  void Ask(Task task);
  void Live();
  void Watch();
  void Heard(const MembershipEvent& event);
  void NoteContact();

  void DoJoin();
  std::optional<AssignedRanks> Exchange();
  /// False: the round has come to its end before.
  bool AwaitKeys(const std::vector<std::string>& keys);
  void DoTellFailure(const std::string& failure);
  void DoBarrier();
  bool AwaitOthersAtTheExit();
  void DoClose(const std::string& reason);
  void DoLeave();
  void DoFinish();
  void NoteTheEnd();

  void ReadFailure();
  bool OthersHaveSucceeded();
  void Tell(AgentEvent::Kind kind, std::string text = "");

  const RendezvousThreadOptions options_;
  RendezvousHandler& handler_;
  System& around_;
  Clock& clock_;
  const std::function<void(AgentEvent)> tell_;
  const bool is_told_;  ///< The backend tells of members; the static one never does.

  // Its thread's own.
  RendezvousInfo info_{};
  bool is_watching_ = false;
  bool is_at_work_ = false;     ///< From a round's beginning until the workers here have succeeded.
  bool can_be_woken_ = false;   ///< While it waits for news.
  bool knows_the_end_ = false;  ///< Of the job; for itself and, counted, for whoever serves.
  std::string told_;            ///< The failure that this node reported last in this round.
  std::optional<Instant> out_of_reach_since_;

  const std::unique_ptr<Monitor> monitor_;
  // Guarded by it.
  std::deque<Task> tasks_;
  bool is_busy_ = false;
  bool is_ending_ = false;
  bool is_joining_ = false;
  Placement placement_{};
  std::string failure_elsewhere_;

  std::unique_ptr<Thread> thread_;
};

}  // namespace muster
