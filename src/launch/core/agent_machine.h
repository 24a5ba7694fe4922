// The supervisor of one node's workers: what happens and the time go in; join, start, signal, close
// and end come out. It knows no process, no store and no clock; whoever drives it does.
//
//   joining ──▶ working ──▶ stopping ──▶ joining      workers failed, or others come or go
//                  │            └──────▶ ended        no restarts left, a signal, the job failed
//                  └──▶ barrier ──▶ ended             all workers have succeeded
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace muster {

struct AgentRules {
  size_t workers = 1;
  int64_t max_restarts = 0;
  Duration grace = 30s;          ///< Between the signal to end and SIGKILL.
  Duration kill_patience = 10s;  ///< For the system to end what was killed; then it is left behind.
  Duration barrier_max = 300s;   ///< For the workers of other nodes to end as well.
  /// Workers that fail may be the first to notice that another node is gone, and then it is not
  /// their failure. So long the agent waits to hear of it: longer than a broken connection may take
  /// to come back.
  Duration verdict_patience = 700ms;
  /// The same, where another node's workers have failed before; beyond the grace that it may need
  /// to stop the rest of them.
  Duration others_patience = 5s;
};

/// How a worker ended: an exit status, or the negative number of a signal.
using ExitCode = int;

struct AgentEvent {
  enum class Kind {
    kBegin,
    kJoined,         ///< A round is complete, and ranks are known. `alone`: no other node is in it.
    kJoinFailed,     ///< `text` says why.
    kNotNeeded,      ///< This node was a spare, and the job has ended well without it.
    kWorkerEnded,    ///< `worker` and `code`.
    kStartFailed,    ///< A worker could not be started. Those that were are under way.
    kMembership,     ///< A member is lost, or nodes wait for the next round; `text` says which.
    kBlame,          ///< Of all failures in this round ours is the first; or `text` is another's.
    kJobFailed,      ///< Workers of another node failed for good; `text` says where and how.
    kBarrierPassed,  ///< All nodes' workers have succeeded.
    kBarrierFailed,  ///< The store is out of reach; `text` says why.
    kSignal,         ///< `signal` came, and ends the agent.
    kTime,           ///< It is later: see AgentMachine::due().
  };

  Kind kind = Kind::kTime;
  size_t worker = 0;
  ExitCode code = 0;
  int signal = 0;
  bool alone = false;
  std::string text{};
};

struct AgentAction {
  enum class Kind {
    kJoin,          ///< The next round: what was of the last one is given up.
    kStart,         ///< All workers, with `restarts` so far.
    kSignal,        ///< `signal` to the trees of `workers`.
    kTellFailure,   ///< Workers have failed: tell the others, and find out whether theirs were
                    ///< first. Again for each that ends later: it may have failed before.
    kSweep,         ///< Nothing of the last attempt may live on, whoever started it.
    kEnterBarrier,  ///< Tell the others that all workers here have succeeded, and wait for theirs.
    kClose,         ///< The rendezvous: the job has ended. `text` says how.
    kLeave,         ///< The rendezvous: others go on.
    kSay,           ///< `text`, to whoever watches.
    kEnd,           ///< With `status`; `text` says why.
  };

  Kind kind = Kind::kSay;
  std::vector<size_t> workers{};
  int signal = 0;
  int64_t restarts = 0;
  int status = 0;
  std::string text{};
};

using AgentActions = std::vector<AgentAction>;

/// A worker that did not end well by itself.
struct WorkerFailure {
  size_t worker = 0;
  ExitCode code = 0;
  Instant at{};
  std::optional<Instant> told_at{};  ///< It had been sent a signal then: a victim.

  bool operator==(const WorkerFailure&) const = default;
};

class AgentMachine {
 public:
  explicit AgentMachine(const AgentRules& rules);

  AgentActions Step(const AgentEvent& event, Instant now);

  /// When to come back with kTime, if nothing else happens before.
  Instant due() const { return std::min(due_, verdict_at_); }
  int64_t restarts() const { return restarts_; }
  /// Of the last attempt, in the order in which they were seen: who failed, and who fell with it.
  const std::vector<WorkerFailure>& failures() const { return failures_; }
  /// The first that came; 0: none has.
  int signal() const { return signal_; }
  bool ended() const { return stage_ == Stage::kEnded; }

 private:
  enum class Stage { kIdle, kJoining, kWorking, kStopping, kBarrier, kEnded };
  /// Why the workers are being stopped, from the least to the most final: a better reason replaces
  /// a worse one.
  enum class Then { kUndecided, kRejoin, kRestart, kFail, kSignalled };

  void OnWorkerEnded(const AgentEvent& event, Instant now, AgentActions& out);
  void OnMembership(const AgentEvent& event, Instant now, AgentActions& out);
  void OnJobFailed(const AgentEvent& event, Instant now, AgentActions& out);
  void OnSignal(const AgentEvent& event, Instant now, AgentActions& out);
  void OnTime(Instant now, AgentActions& out);

  void Join(AgentActions& out);
  void Start(AgentActions& out);
  void WorkersFailed(Instant now, AgentActions& out);
  void OnBlame(const AgentEvent& event, Instant now);
  void Judge(AgentActions& out);
  void Stop(Then then, int signal, Instant now, AgentActions& out);
  void Told(int signal, Instant now, AgentActions& out);
  void AllGone(AgentActions& out);
  void Close(AgentActions& out);
  void EnterBarrier(Instant now, AgentActions& out);
  void End(int status, std::string why, AgentActions& out);
  std::vector<size_t> Alive() const;

  const AgentRules rules_;
  Stage stage_ = Stage::kIdle;
  Then then_ = Then::kRejoin;
  std::string why_;          // of `then_`
  std::vector<bool> alive_;  // by worker
  std::vector<WorkerFailure> failures_;
  int64_t restarts_ = 0;
  int signals_ = 0;                        // that came to the agent
  int signal_ = 0;                         // the first of them
  Instant told_at_{};                      // what was alive then: to end
  bool killed_ = false;                    // what is still alive
  bool closed_ = false;                    // the rendezvous: nobody joins again
  bool alone_ = false;                     // in its round
  Instant due_ = Instant::Never();         // to kill, or to give up the barrier
  Instant verdict_at_ = Instant::Never();  // on the workers' failure
};

}  // namespace muster
