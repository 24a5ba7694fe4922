// The launcher of one node: drives the agent machine. A WorkerRunner starts workers, a
// RendezvousThread makes the calls of the rendezvous, and an AgentHost does everything else.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "launch/core/agent_machine.h"
#include "launch/rendezvous_thread.h"
#include "muster/rendezvous_handler.h"
#include "os/ports/system.h"
#include "os/ports/worker_runner.h"

namespace muster {

/// What an agent needs from its program. Called on the agent's thread.
class AgentHost {
 public:
  virtual ~AgentHost() = default;

  /// The agent joins a round, which may take long.
  virtual void OnJoining() = 0;
  /// A round has formed: the commands of this node's workers, after so many restarts. An error of
  /// it ends the job.
  virtual Result<std::vector<WorkerCommand>> Prepare(const Placement& place, int64_t restarts) = 0;
  virtual void OnStarted(size_t worker, int64_t pid) = 0;
  virtual void OnEnded(size_t worker, int64_t pid, ExitCode code) = 0;
  /// The first cause of these failures, in the form that is sent to the other nodes; empty if the
  /// launcher had signalled all of these workers.
  virtual std::string DescribeCause(const std::vector<WorkerFailure>& failures) = 0;
  /// No worker is left. `failures` of the attempt, in the order in which they were seen.
  virtual void OnAttemptOver(const std::vector<WorkerFailure>& failures) = 0;
  virtual void Log(const std::string& line) = 0;
};

struct AgentOptions {
  AgentRules rules{};
  RendezvousThreadOptions rendezvous{};
  /// For processes that successful workers have left, instead of ending them.
  bool waits_for_children = false;
  /// Time for the last requests to the rendezvous.
  Duration shutdown_max = 5s;
};

class Agent {
 public:
  Agent(const AgentOptions& options, RendezvousHandler& handler, WorkerRunner& runner,
        AgentHost& host, System& around);

  /// Runs until the job has ended for this node; returns its exit status. Afterwards `why()` has
  /// the reason.
  int Run();

  // Any thread.
  void OnSignal(int signal) { Post({.kind = AgentEvent::Kind::kSignal, .signal = signal}); }
  void OnWorkerEnded(size_t worker, int64_t pid, int code);
  void OnWorkerStuck(size_t worker, int64_t pid);

  const std::string& why() const { return why_; }
  const AgentMachine& machine() const { return machine_; }
  const RendezvousThread& rendezvous() const { return rendezvous_; }

 private:
  using Lock = std::unique_lock<Monitor>;

  void Post(AgentEvent event);
  std::vector<AgentEvent> AwaitEvents();
  void Handle(const AgentEvent& event);
  void Step(const AgentEvent& event);
  void Execute(const AgentAction& action);
  void StartWorkers(int64_t restarts);
  void ReportStartFailure(size_t worker, const std::string& why);
  void EndLeftovers();

  const AgentOptions options_;
  WorkerRunner& runner_;
  AgentHost& host_;
  System& around_;
  Clock& clock_;
  AgentMachine machine_;
  std::vector<int64_t> pids_;   ///< Pids of the workers that were started last.
  bool may_have_left_ = false;  ///< The workers have succeeded, and nothing has been swept.
  int status_ = 1;
  std::string why_;

  const std::unique_ptr<Monitor> monitor_;
  std::vector<AgentEvent> events_;  // guarded by it

  RendezvousThread rendezvous_;  // last: its thread posts events as long as it lives
};

}  // namespace muster
