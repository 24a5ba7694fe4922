// One run: a server (or etcd), its nodes, the faults, the healing, and whether all nodes came
// together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "muster/rendezvous_handler.h"
#include "sim/agent.h"
#include "sim/checkers.h"
#include "sim/etcd.h"
#include "sim/etcd_overseer.h"
#include "sim/job_watch.h"
#include "sim/launcher.h"
#include "sim/member_watch.h"
#include "sim/network.h"
#include "sim/plan.h"
#include "sim/process.h"
#include "sim/store_host.h"
#include "sim/trace.h"
#include "sim/watch.h"

namespace muster::sim {

struct RunOutcome {
  std::string violation{};  ///< Empty: none.
  uint64_t hash = 0;
  WorldTime virtual_time{};
  Duration healed_in{};  ///< From the end of faults to the moment since when all nodes were
                         ///< together; of launchers, until the last has ended.
  bool closed = false;   ///< All have ended: the rendezvous was closed.
  /// Not all came together, because one of PyTorch's nodes was left behind: `healed_in` means
  /// nothing.
  bool exempt = false;
  uint64_t steps = 0;
  uint64_t messages = 0;
  uint64_t bytes = 0;
  size_t rounds = 0;
  JobFigures jobs{};  ///< Of launchers.
};

class World {
 public:
  static constexpr const char* kServer = "10.0.0.1";
  static constexpr uint16_t kPort = 29400;
  static constexpr const char* kRun = "sim";
  static constexpr const char* kEtcdPrefix = "/muster";
  static constexpr std::chrono::milliseconds kStoreTimeout{5'000};

  explicit World(const Plan& plan);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs until all have come together again (launchers: have ended), or a violation is found.
  RunOutcome Run();

  /// Called by Run() every hundredth of a second of virtual time, between two events.
  std::function<void()> on_turn{};

  const Plan& plan() const { return plan_; }
  /// Whether there are faults now.
  bool is_troubled() const { return troubled_; }
  Checkers& checkers() { return checkers_; }
  Trace& trace() { return trace_; }
  /// Only with Driver::kEtcd.
  SimEtcd& etcd() { return *etcd_; }
  void Note(size_t node, const std::string& line);
  /// Messages to or from that machine may take longer until then.
  void Disturb(HostId host, WorldTime until);

  // --- What agents report.
  /// Returns the life of the server whose round it is.
  std::optional<Epoch> NodeJoined(size_t index, const Node& node, int64_t round_before,
                                  const RendezvousInfo& info);
  void NodeEnded(size_t index);
  /// Nodes whose workers work in that round.
  int64_t WorkingIn(int64_t round) const;

  // --- What launchers report.
  JobWatch& job() { return job_; }
  /// The launcher was refused: the rendezvous must have been closed.
  void CheckRefused(size_t index);
  /// A node's workers of that round are broken: the workers of the others may notice.
  void NotifyPeers(size_t index, RoundId id);
  void LauncherEnded(size_t index, int status);

 private:
  friend class FaultInjector;

  static constexpr int64_t kClosed = -1;

  struct Place {
    HostId host;
    uint32_t lives = 0;
    SimProcess* process = nullptr;
    Agent* agent = nullptr;
    Launcher* launcher = nullptr;  ///< Instead.
    bool ended = false;            ///< No further round of the node will follow.
  };

  void MakeEtcd();
  void StartServer();
  void EndServer(Network::Ending ending);
  void StartNode(size_t index);
  void EndNode(size_t index, Network::Ending ending);
  void Heal();
  /// The node in that process knows that it is out of its round, or must know. `round`: which one,
  /// if its place there was the last message that it received before.
  void NotifiedOut(const SimProcess& process, int64_t round = -1);
  /// Called after every step of the server.
  void NoteRun(const Coordinator::Run& run);
  void LookAtState();
  /// Whether messages to or from that machine may take longer now.
  bool IsDisturbed(HostId host) const;
  /// What the node knows, if nothing delays messages to it.
  std::optional<Inbox> InboxOf(const Coordinator::Member& member) const;
  /// A message is about to be received that may change nothing.
  void NoteIfStale(const Connection& connection);
  /// Runs all events until then; stops at a violation.
  void PassUntil(WorldTime until);
  /// The round in which all nodes are that can be, and know it; kClosed if they were notified of
  /// the end.
  std::optional<int64_t> TogetherIn() const;
  /// All come together, and stay so. False: they did not until then.
  bool ComeTogether(WorldTime within);
  bool ATorchNodeIsLost() const;
  bool AllEnd(WorldTime within);
  std::string HowItStands() const;

  const Plan plan_;
  Prng prng_;
  Trace trace_;
  Scheduler scheduler_;
  Network network_;
  Checkers checkers_;
  JobWatch job_;
  MemberWatch members_;
  std::map<HostId, WorldTime> disturbed_;
  HostId server_host_{};
  std::vector<std::unique_ptr<SimProcess>> processes_;  ///< With dead ones: events refer to them.
  std::vector<std::unique_ptr<Agent>> agents_;
  std::vector<std::unique_ptr<Launcher>> launchers_;
  std::vector<Place> places_;
  SimProcess* server_ = nullptr;
  std::unique_ptr<StoreHost> host_;
  std::unique_ptr<SimEtcd> etcd_;  ///< Instead.
  std::unique_ptr<EtcdOverseer> overseer_;
  Epoch epoch_ = 0;  ///< Counts servers, and runs that a server has forgotten and created again.
  std::pair<const SimProcess*, uint64_t> run_{};  ///< The present run: its server and its number.
  size_t connected_ = 0;                          ///< Nodes with a session in it.
  std::set<std::string> generations_{};           ///< Of all runs.
  std::optional<Epoch> closed_in_;
  std::string document_;  ///< As last seen.
  int64_t document_round_ = 0;
  std::optional<Watch> watch_;
  std::optional<RunPicture> before_stale_;
  bool troubled_ = true;
  WorldTime together_since_{};
};

}  // namespace muster::sim
