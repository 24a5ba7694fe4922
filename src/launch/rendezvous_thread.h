// The launcher's part in the rendezvous, on its own thread: it joins, exchanges ranks with the
// other nodes, waits for membership events while the workers run, and enters the exit barrier. It
// makes one call of its handler at a time; what it receives becomes events of the agent.
//
// The keys are those of PyTorch's agents, so that both can be nodes of one job. Keys that begin
// with "muster/" are additional, and other agents do not need them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/time.h"
#include "launch/core/agent_machine.h"
#include "launch/core/ranks.h"
#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"

namespace muster {

/// The keys of a round for `muster status`: JSON with `since` (microseconds since 1970) and
/// `workers`; and how many restarts all nodes have counted, if any.
inline constexpr const char* kRunningKey = "muster/running";
inline constexpr const char* kRestartsKey = "muster/restarts";

/// The place of a node and its workers in a round.
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
  /// How long the rendezvous may be unreachable before the job fails: while workers run, and when
  /// the node joins again.
  Duration contact_max = 30s;
  std::string where = "the rendezvous";  ///< As the user knows it.
  std::string advice{};                  ///< What to do if it is gone, after "; ".
  /// How often a backend that sends no events (c10d) is queried for them.
  Duration monitor_interval = 100ms;
};

class RendezvousThread {
 public:
  struct State {
    Placement placement{};            ///< Of the last kJoined.
    std::string failure_elsewhere{};  ///< What another node has reported as the first failure of
                                      ///< the round; may be empty.
    bool is_joining = false;
    bool is_lost = false;  ///< The rendezvous, for contact_max.
    bool is_idle = true;   ///< No call is in progress for which the destructor would wait.
  };

  /// `report` is called on threads of this object.
  RendezvousThread(RendezvousThreadOptions options, RendezvousHandler& handler, System& around,
                   std::function<void(AgentEvent)> report);
  /// Waits for the call that is in progress.
  ~RendezvousThread();

  // Requests. They are executed later, in their order. Any thread.
  /// `restarts`: how many this node has counted.
  void Join(int64_t restarts) {
    Post([restarts](RendezvousThread& self) { self.DoJoin(restarts); });
  }
  /// Reports `failure` to all nodes, unless another node has reported an earlier one. The node that
  /// reports first pays for the restart; a later correction changes only the report.
  void ReportFailure(std::string failure) {
    Post([failure = std::move(failure)](RendezvousThread& self) { self.DoReportFailure(failure); });
  }
  void EnterBarrier() { Post(&RendezvousThread::DoBarrier); }
  void Close(std::string reason) {
    Post([reason = std::move(reason)](RendezvousThread& self) { self.DoClose(reason); });
  }
  void Leave() { Post(&RendezvousThread::DoLeave); }
  /// The last request.
  void Finish() { Post(&RendezvousThread::DoFinish); }

  /// Whether all requests are executed; waits for that until then.
  bool IsDoneBy(Instant until);

  State state() const;

 private:
  using Task = std::function<void(RendezvousThread&)>;
  using Lock = std::unique_lock<Monitor>;

  void Post(Task task);
  void Run();
  Instant NextCheck() const;
  void CheckEvents();
  void OnMembership(const MembershipEvent& event);
  /// False: it was lost for too long.
  bool CheckContact();
  void OnContact();
  bool IsGone();
  Duration ContactPause() const;

  void DoJoin(int64_t restarts);
  void PublishRound(int64_t workers, int64_t restarts);
  RendezvousInfo NextRound();
  std::optional<AssignedRanks> Exchange();
  void Compare(const NodeRole& own, const NodeRole& other, int64_t rank);
  /// False: the round ended before that.
  bool AwaitKeys(const std::vector<std::string>& keys);
  void DoReportFailure(const std::string& failure);
  void DoBarrier();
  bool AwaitLastMember();
  void DoClose(const std::string& reason);
  void DoLeave();
  void DoFinish();
  void ConfirmEnd();

  void ReadFailure();
  bool OthersHaveSucceeded();
  void Report(AgentEvent::Kind kind, std::string text = "");
  /// Changes a member of the state.
  template <typename Member>
  void Set(Member State::*member, std::type_identity_t<Member> value) {
    const Lock lock(*monitor_);
    state_.*member = std::move(value);
  }

  const RendezvousThreadOptions options_;
  RendezvousHandler& handler_;
  System& around_;
  Clock& clock_;
  const std::function<void(AgentEvent)> report_;
  const bool has_events_;  ///< The backend knows of changes; the static one never does.

  // Used by its thread only.
  RendezvousInfo info_{};
  bool is_watching_ = false;
  bool is_at_work_ = false;    ///< From a round's beginning until the workers here have succeeded.
  bool can_be_woken_ = false;  ///< While it waits for events.
  bool is_mixed_ = false;      ///< Another job is in the round, as far as entry points show.
  bool has_confirmed_end_ = false;  ///< Of the job, to the node that serves the rendezvous.
  std::string reported_;            ///< The failure that this node reported last in this round.
  // Also used by the timer of a join.
  std::optional<Instant> unreachable_since_;
  bool is_noticed_ = false;  ///< That it is unreachable.
  Instant checked_at_{};     ///< Events.

  const std::unique_ptr<Monitor> monitor_;
  // Guarded by the monitor.
  std::deque<Task> tasks_;
  bool is_busy_ = false;
  bool is_ending_ = false;
  State state_;  ///< Except `is_idle`.

  std::unique_ptr<Thread> thread_;
};

}  // namespace muster
