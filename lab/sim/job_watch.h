// The launchers of a world together, seen from outside: which workers started in which round and
// with which rank, how they ended, which node counted a failure, and what was closed when.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "launch/core/ranks.h"
#include "launch/rendezvous_thread.h"
#include "sim/checkers.h"
#include "sim/plan.h"
#include "sim/scheduler.h"

namespace muster::sim {

struct JobFigures {
  uint64_t launchers = 0;
  uint64_t succeeded = 0;  ///< Launchers that ended with 0.
  uint64_t attempts = 0;
  uint64_t workers = 0;
  uint64_t restarts = 0;  ///< Restarts that were counted.

  JobFigures& operator+=(const JobFigures& other);
};

/// The same number may occur again in another life of the server.
struct RoundId {
  Epoch epoch = 0;
  int64_t round = -1;
  auto operator<=>(const RoundId&) const = default;
};

class JobWatch {
 public:
  JobWatch(const Plan& plan, Checkers& checkers) : plan_(plan), checkers_(checkers) {}

  /// The server reports that it is closed: no round begins after this one.
  void SeeClosed(Epoch epoch, const RendezvousState& state);
  /// A node is about to start its workers.
  void SeeStart(size_t node, RoundId id, const Placement& place);
  /// All workers of a node have ended with 0.
  void SeeSuccess(size_t node, RoundId id) { rounds_[id].members[node].succeeded = true; }
  /// A node ends because it believes that the workers of all nodes have succeeded.
  void SeeAllSucceeded(size_t node, RoundId id);
  void SeeNodeLost(RoundId id, WorldTime when);
  /// A failure of its workers at that time has cost a node a restart, or has ended the job.
  void SeePaid(size_t node, RoundId id, WorldTime failed_at);

  JobFigures figures{};

 private:
  struct Member {
    std::optional<Placement> place{};
    bool succeeded = false;
  };
  struct Round {
    std::map<size_t, Member> members{};
    std::optional<WorldTime> lost_at{};  ///< When the first node died.
    std::optional<size_t> payer{};
  };

  void CheckRanks(size_t node, const Round& round, RoundId id);
  void CheckAllRanks(const Round& round, RoundId id);

  const Plan& plan_;
  Checkers& checkers_;
  std::map<RoundId, Round> rounds_;
  std::map<Epoch, int64_t> last_rounds_;  ///< By life in which the rendezvous was closed.
};

}  // namespace muster::sim
