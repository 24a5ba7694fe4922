// The launcher of one node: drives the agent machine. Workers are started through a runner, the
// rendezvous is spoken to by an attendant, everything else is its host's affair.
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

/// What an agent needs of whoever runs it, called on the agent's thread.
class AgentHost {
 public:
  virtual ~AgentHost() = default;

  /// The rendezvous may take its time now.
  virtual void OnJoining() = 0;
  /// A round has formed: the commands of this node's workers, after so many restarts. An error ends
  /// the job.
  virtual Result<std::vector<WorkerCommand>> Prepare(const Placement& place, int64_t restarts) = 0;
  virtual void OnStarted(size_t worker, int64_t pid) = 0;
  virtual void OnEnded(size_t worker, int64_t pid, ExitCode code) = 0;
  /// The cause of these failures, as it is sent to the other nodes; empty if the launcher stopped
  /// all of these workers.
  virtual std::string DescribeCause(const std::vector<WorkerFailure>& failures) = 0;
  /// No worker is left. `failures` of the attempt, in the order in which they were seen.
  virtual void OnAttemptOver(const std::vector<WorkerFailure>& failures) = 0;
  virtual void Say(const std::string& line) = 0;
};

struct AgentOptions {
  AgentRules rules{};
  RendezvousThreadOptions rendezvous{};
  /// For the rendezvous to be told, at the very end.
  Duration farewell_max = 5s;
};

class Agent {
 public:
  Agent(const AgentOptions& options, RendezvousHandler& handler, WorkerRunner& runner,
        AgentHost& host, System& around);

  /// Until the job has ended for this node; returns its exit status. `why()` afterwards.
  int Run();

  // Any thread.
  void OnSignal(int signal);
  void OnWorkerEnded(size_t worker, int64_t pid, int code);

  const std::string& why() const { return why_; }
  const AgentMachine& machine() const { return machine_; }
  const RendezvousThread& rendezvous() const { return rendezvous_; }

 private:
  struct News {
    AgentEvent event;
    int64_t pid = 0;  ///< kWorkerEnded.
  };
  using Lock = std::unique_lock<Monitor>;

  void Post(News news);
  std::vector<News> Await();
  void Hear(const News& news);
  void Step(const AgentEvent& event);
  void Do(const AgentAction& action);
  void StartWorkers(int64_t restarts);
  void CannotStart(size_t worker, const std::string& why);

  const AgentOptions options_;
  WorkerRunner& runner_;
  AgentHost& host_;
  System& around_;
  Clock& clock_;
  AgentMachine machine_;
  std::vector<int64_t> pids_;  ///< Of the workers that were started last.
  int status_ = 1;
  std::string why_;

  const std::unique_ptr<Monitor> monitor_;
  std::vector<News> news_;  // guarded by it

  RendezvousThread rendezvous_;  // last: it tells news from its first moment to its end
};

}  // namespace muster
