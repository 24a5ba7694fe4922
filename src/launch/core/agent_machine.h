// The supervisor of one node's workers: it takes events and the time, and returns the actions join,
// start, signal, close and end. Processes, stores and clocks belong to its driver (agent.h).
//
//   joining ──▶ working ──▶ stopping ──▶ joining      workers failed, or others come or go
//                  │            └──────▶ ended        no restarts left, a signal, the job failed,
//                  │                                  a worker in uninterruptible sleep
//                  └──▶ barrier ──▶ ended             all workers have succeeded
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"

namespace muster {

/// Seconds that a worker may spend in uninterruptible sleep. Unset, or not above 0: no limit.
inline constexpr const char* kUninterruptibleVariable =
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";

struct AgentRules {
  size_t workers = 1;
  int64_t max_restarts = 0;
  Duration grace = 30s;          ///< Between the signal to end and SIGKILL.
  Duration kill_patience = 10s;  ///< Time for killed workers to end; then they are left behind.
  Duration barrier_max = 300s;   ///< Time for the workers of other nodes to end, too.
  /// Workers may fail because another node is lost, and then no restart is counted. The agent waits
  /// this long for a notice of the loss: longer than it takes to restore a broken connection.
  Duration verdict_patience = 700ms;
  /// The same if workers of another node have failed first, in addition to the grace that this node
  /// may need to stop the rest of them.
  Duration others_patience = 5s;
};

/// How a worker ended: an exit status, or the negative number of a signal.
using ExitCode = int;

struct AgentEvent {
  enum class Kind {
    kBegin,
    kJoined,         ///< A round is complete, and ranks are known. `alone`: no other node is in it.
    kJoinFailed,     ///< `text` says why.
    kNotNeeded,      ///< This node was a spare, and the job has succeeded without it.
    kWorkerEnded,    ///< `worker` and `code`.
    kWorkerStuck,    ///< `worker` has been in uninterruptible sleep for too long; `text` says so.
    kStartFailed,    ///< A worker could not be started. Others may run.
    kMembership,     ///< A member is lost, or nodes wait for the next round; `text` says which.
    kBlame,          ///< The first failure of this round is ours; with `text` it is another node's.
    kJobFailed,      ///< Workers of another node failed permanently; `text` says where and how.
    kBarrierPassed,  ///< All nodes' workers have succeeded.
    kBarrierFailed,  ///< The store is unreachable; `text` says why.
    kNotice,         ///< `text`, for the user.
    kSignal,         ///< The agent has received `signal`, which ends it.
    kTime,           ///< Time has passed: see AgentMachine::due().
  };

  Kind kind = Kind::kTime;
  size_t worker = 0;
  int64_t pid = 0;  ///< For the agent, of a worker. 0: the worker was not started.
  ExitCode code = 0;
  int signal = 0;
  bool alone = false;
  std::string text{};
};

struct AgentAction {
  enum class Kind {
    kJoin,           ///< The next round.
    kStart,          ///< All workers, with `restarts` so far.
    kSignal,         ///< `signal` to the trees of `workers`.
    kReportFailure,  ///< Workers have failed: report it to the other nodes, and find out whether
                     ///< theirs failed first. Again for each that ends later: it may have failed
                     ///< earlier.
    kSweep,          ///< End all processes of the last attempt.
    kSucceeded,      ///< All workers here have: what they have left may run until kEnd.
    kEnterBarrier,   ///< Report that all workers here have succeeded, and wait for the others.
    kClose,          ///< The rendezvous: the job has ended. `text` says how.
    kLeave,          ///< The rendezvous: other nodes continue.
    kLog,            ///< `text`, for the user.
    kEnd,            ///< With `status`; `text` says why.
  };

  Kind kind = Kind::kLog;
  std::vector<size_t> workers{};
  int signal = 0;
  int64_t restarts = 0;
  int status = 0;
  std::string text{};
};

using AgentActions = std::vector<AgentAction>;

/// A worker that did not end with status 0.
struct WorkerFailure {
  size_t worker = 0;
  ExitCode code = 0;
  Instant at{};
  std::optional<Instant> signalled_at{};  ///< The launcher had signalled it before it ended.

  bool operator==(const WorkerFailure&) const = default;
};

class AgentMachine {
 public:
  explicit AgentMachine(const AgentRules& rules) : rules_(rules) {}

  AgentActions Step(const AgentEvent& event, Instant now);

  /// When to step with kTime, unless another event comes first.
  Instant due() const { return std::min(due_, verdict_at_); }
  int64_t restarts() const { return restarts_; }
  /// Failures of the last attempt, in the order in which they were detected, including signalled
  /// workers.
  const std::vector<WorkerFailure>& failures() const { return failures_; }
  /// The first signal received; 0: none.
  int signal() const { return signal_; }
  bool ended() const { return stage_ == Stage::kEnded; }

 private:
  enum class Stage { kIdle, kJoining, kWorking, kStopping, kBarrier, kEnded };
  /// Why the workers are being stopped, from the least to the most final: a more final reason
  /// replaces another one.
  enum class Then { kUndecided, kRejoin, kRestart, kLeave, kFail, kSignalled };

  void Handle(const AgentEvent& event, Instant now, AgentActions& out);
  void OnWorkerEnded(const AgentEvent& event, Instant now, AgentActions& out);
  void OnWorkerStuck(const AgentEvent& event, Instant now, AgentActions& out);
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
  void SignalAll(int signal, Instant now, AgentActions& out);
  void AllGone(AgentActions& out);
  void Close(AgentActions& out);
  void EnterBarrier(Instant now, AgentActions& out);
  void EndWithoutOthers(std::string note, AgentActions& out);
  void End(int status, std::string why, AgentActions& out);

  const AgentRules rules_;
  Stage stage_ = Stage::kIdle;
  Then then_ = Then::kRejoin;
  std::string why_;         // of `then_`
  std::set<size_t> alive_;  // workers
  std::vector<WorkerFailure> failures_;
  int64_t restarts_ = 0;
  int signals_ = 0;                        // received by the agent
  int signal_ = 0;                         // the first of them
  Instant signalled_at_{};                 // when the workers that were alive then were signalled
  bool killed_ = false;                    // the workers that are still alive
  bool closed_ = false;                    // the rendezvous: no node joins again
  bool alone_ = false;                     // in its round
  Instant due_ = Instant::Never();         // to kill, or to leave the barrier
  Instant verdict_at_ = Instant::Never();  // on the workers' failure
};

}  // namespace muster
