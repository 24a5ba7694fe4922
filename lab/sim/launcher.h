// A launcher in a simulated process: the real agent, rendezvous thread and handler, with simulated
// workers. It checks what its agent does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "launch/agent.h"
#include "muster/rendezvous_handler.h"
#include "rendezvous/core/node.h"
#include "sim/job_watch.h"
#include "sim/member_watch.h"
#include "sim/process.h"
#include "sim/workers.h"

namespace muster::sim {

class World;

class Launcher final : private AgentHost {
 public:
  Launcher(World& world, SimProcess& process, size_t index, uint64_t seed);

  /// The body of its process.
  void Main();

  // --- Faults, from outside.
  void Signal(int signal);
  /// Its process has been killed.
  void OnKilled();
  /// Workers with which its own work, or their launcher, are gone.
  void OnPeersLost(RoundId id);
  void Heal() { workers_.Heal(); }
  /// The network has just delivered the message that it is out of its round.
  void NotifiedOut();

  Inbox inbox() const;

  std::string HowItStands() const;

 private:
  class WatchedHandler;

  /// From the start of its workers until it joins again.
  struct Attempt {
    RoundId id{};
    int64_t restarts = 0;
    std::optional<WorldTime> failed_at{};  ///< When a worker failed by itself.
  };

  // --- AgentHost
  void OnJoining() override;
  Result<std::vector<WorkerCommand>> Prepare(const Placement& place, int64_t restarts) override;
  void OnStarted(size_t worker, int64_t pid) override;
  void OnEnded(size_t worker, int64_t pid, ExitCode code) override;
  std::string DescribeCause(const std::vector<WorkerFailure>& failures) override;
  void OnAttemptOver(const std::vector<WorkerFailure>& failures) override;
  void Log(const std::string& line) override;

  // --- Calls of the handler.
  void Joined(const RendezvousInfo& info);
  void TurnedAway(bool is_spare);
  void OnEvent(const MembershipEvent& event);
  void Closing();

  void OnWorkerEnd(const SimWorkers::End& end);
  void Ended(int status, const std::string& why);
  /// It was notified that its round is over: it must stop its workers.
  void ExpectStop(const std::string& why);
  void Violate(const std::string& what);
  WorldTime Now() const { return process_.scheduler().now(); }

  World& world_;
  SimProcess& process_;
  const size_t index_;
  Prng prng_;
  SimWorkers workers_;
  muster::Agent* agent_ = nullptr;      // set while it runs
  RoundId round_{};                     // the last round that it joined
  std::optional<RoundId> cut_off_in_;   // the last round in which it saw that the server is gone
  std::optional<RoundId> notified_of_;  // the last round whose change of members it was notified of
  std::optional<Attempt> attempt_;
  int64_t restarts_ = 0;  // so far, counted from outside
  bool is_joining_ = false;
  bool was_spare_ = false;  // and the job ended without it
  bool was_signalled_ = false;
  bool knew_closed_ = false;
  std::string last_words_;
  Inbox inbox_{};
  RendezvousHandler* handler_ = nullptr;  // set while it runs
};

}  // namespace muster::sim
