// The content of a run, drawn from its seed: how many nodes, their options, their faults. Each run
// has some faults and not others: a few may show what all of them together would hide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "launch/core/ranks.h"
#include "rendezvous/core/run_settings.h"
#include "sim/network.h"

namespace muster::sim {

/// A run with more nodes tests scale.
inline constexpr int64_t kFewNodes = 64;

enum class Driver {
  kCoordinator,
  kDocument,
  kMixed,     ///< The document, shared with nodes that behave like PyTorch's.
  kLauncher,  ///< The coordinator, with launchers and their workers. Only on request.
  kEtcd,      ///< The nodes meet in etcd, and one of them is the coordinator. Only on request.
};
inline constexpr size_t kDriverCount = 5;
inline bool IsCoordinated(Driver driver) {
  return driver == Driver::kCoordinator || driver == Driver::kLauncher || driver == Driver::kEtcd;
}
const char* NameOf(Driver driver);
std::optional<Driver> DriverOf(std::string_view name);

/// Switches, one for each kind of fault.
struct Faults {
  bool loss = false;
  bool delay = false;
  bool fragment = false;
  bool cut = false;  ///< A link, both ways or one way.
  bool clog = false;
  bool reset = false;
  bool crash = false;  ///< Of a node's process; a new one comes after a while.
  bool power = false;  ///< The same for its machine: peers get no notice.
  bool pause = false;
  bool exodus = false;   ///< All nodes die, the server forgets the run, and others with its name
                         ///< come.
  bool suspend = false;  ///< A machine stands still, perhaps the server's, and its clock
                         ///< continues.
  bool server_crash = false;  ///< It comes back without its data. Etcd comes back with its data.
  bool server_pause = false;
  bool skew = false;        ///< Wall clocks differ.
  bool jump = false;        ///< ... and jump.
  bool drift = false;       ///< Monotonic clocks run at different speeds.
  bool slow_write = false;  ///< Of the document, or into etcd.
  bool lost_write = false;  ///< ... or it fails, and may have been executed.
  bool same_pid = false;    ///< A restarted process has the id of the old one, as in containers.
  bool leave = false;       ///< Nodes leave, and come again. Launchers receive signals.
  bool restart = false;     ///< Workers fail: nodes join again without a reason of the others.
  bool close = false;       ///< A node closes the rendezvous. A launcher cannot start a worker.
  // Of etcd only.
  bool election = false;     ///< Of a member of its cluster: for some time there are no answers.
  bool compaction = false;   ///< It compacts its history.
  bool watch_delay = false;  ///< Watch events are late.
  bool meddling = false;     ///< An operator deletes or overwrites keys of the nodes.
  bool restore = false;      ///< It ends, and comes back with the data of an earlier backup.
};

/// The options of launchers, and how their workers behave. Times are short, because every job must
/// end.
struct LaunchPlan {
  int64_t workers_max = 1;  ///< A node has between one worker and so many.
  int64_t roles = 1;
  bool are_identical = false;  ///< Ranks need no exchange.
  int64_t max_restarts = 0;
  Duration grace = 500ms;
  Duration kill_patience = 2s;
  Duration barrier_max = 2s;
  Duration contact_max = 2s;
  Duration farewell_max = 1s;
  Duration verdict_patience = 700ms;
  Duration others_patience = 5s;

  Duration work_max = 2s;      ///< A worker's life without faults.
  bool ends_together = false;  ///< The workers of a round end together.
  bool starts_again = false;   ///< A launcher that failed while there were faults is restarted.
  // So many of a hundred workers, until everything is healed.
  uint64_t crash = 0;
  uint64_t hang = 0;          ///< Until it gets a signal.
  uint64_t stubborn = 0;      ///< Slow to end after SIGTERM, or ignores everything but SIGKILL.
  uint64_t fall = 0;          ///< Notice that workers of another node are gone, and fail.
  uint64_t leave_behind = 0;  ///< Leave a process behind when they end.
};

struct Plan {
  uint64_t seed = 0;
  Driver driver = Driver::kCoordinator;
  int64_t nodes = 4;
  int64_t torch_nodes = 0;  ///< How many of them behave like PyTorch's.
  RunSettings settings{};
  Duration join_timeout = 20s;
  size_t server_loops = 1;
  Duration run_kept = 600s;  ///< How long the server remembers a run without nodes.
  NetworkOptions network{};
  Faults faults{};
  LaunchPlan launch{};
  Duration arrival = 0s;   ///< Nodes start at any time within this.
  Duration trouble = 10s;  ///< Then everything is healed.
  int64_t faults_at_once = 1;
  /// Until everything is healed, nodes check only so often whether their round has changed, so more
  /// notices arrive in between. 0: they act at once.
  Duration looks_every = 0s;
  Duration fault_every = 500ms;  ///< On average.

  /// "seed=8123 driver=coordinator nodes=7 min=4 …": the whole plan.
  std::string ToString() const;
  /// Every run has formed its final round within this time after healing.
  Duration HealBound() const;
  /// Every launcher has ended within this time after healing.
  Duration EndBound() const;
  /// The round then has to last for so long: a node that was lost silently is noticed by then.
  Duration RestFor() const;
  /// Within this, a node that is lost silently is declared lost.
  Duration MissedWithin() const;
  /// The role that a launcher sends.
  NodeRole RoleOf(size_t node) const;
  /// Only workers and launchers fail, and a death is noticed at once: the first failure is certain.
  bool BlameIsClear() const;
};

/// Constraints of the caller; the seed decides the rest.
struct Constraints {
  std::optional<Driver> driver{};
  std::optional<int64_t> nodes{};
  bool faults = true;
};
Plan Draw(uint64_t seed, const Constraints& constraints);

}  // namespace muster::sim
