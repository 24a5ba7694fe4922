// A cluster of etcd in virtual time, at one address behind the simulated network: one history of
// revisions, leases on the cluster's clock, watches. It keeps only etcd's promises. Calls of one
// client may overtake each other, each watch has its own delay, and a lost answer leaves the
// outcome unknown. Its data outlives its processes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/prng.h"
#include "etcd/etcd_port.h"
#include "sim/etcd_mail.h"
#include "sim/etcd_state.h"
#include "sim/network.h"
#include "sim/process.h"
#include "sim/trace.h"

namespace muster::sim {

/// Switches. Its owner causes elections, compactions, restarts, pauses and cut links.
struct EtcdFaults {
  bool slow = false;         ///< Some calls take up to a second.
  bool lost = false;         ///< Some calls fail, before or after they had an effect.
  bool watch_delay = false;  ///< Some watch events are up to three seconds late.
};

class SimEtcd {
 public:
  static constexpr uint16_t kPort = 2379;
  static constexpr Duration kLookAtLeases = 500ms;
  /// In each check of the leases: a thousand a second.
  static constexpr size_t kRevokedAtOnce = 500;

  SimEtcd(Network& network, Trace& trace, const EtcdFaults& faults, uint64_t seed);
  ~SimEtcd();
  SimEtcd(const SimEtcd&) = delete;
  SimEtcd& operator=(const SimEtcd&) = delete;

  /// Serves in this process from now on; the process outlives the cluster, dead or alive. If the
  /// previous process was killed, the cluster has been restarted with all its data.
  void Serve(SimProcess& process);

  // --- Faults, from outside.
  /// There is no leader for so long. Some clients were connected to the lost one.
  void Elect(Duration time);
  /// Forgets all history before that revision.
  void Compact(int64_t revision);
  /// The cluster, whose process is dead, restarts with the data of an earlier backup (a copy of
  /// state()). Its revision goes back, and what was written since is gone.
  void Restore(const EtcdState& backup);
  /// Executed by an operator on the cluster's machines, not by a node.
  void Meddle(EtcdRequest request);
  /// Ends all faults and the present election.
  void Heal();

  bool is_electing() const;
  const EtcdState& state() const { return state_; }
  Endpoint endpoint() const;
  Network& network() { return network_; }

  /// Makes clients for a process.
  EtcdConnector ConnectorOf(SimProcess& process);

  // --- For observers outside the world.
  /// The store has a new revision, written by a client in that process; nullptr: a lease has
  /// expired.
  std::function<void(const SimProcess* by, int64_t revision)> on_change{};
  /// A process is about to receive that the lease that it keeps alive does not exist.
  std::function<void(SimProcess& process, int64_t lease)> on_lease_lost{};

 private:
  friend class SimEtcdClient;

  struct WatchState {
    EtcdRange range;
    int64_t next = 0;     ///< The first revision that has not been sent to it.
    bool is_due = false;  ///< Its next event is scheduled.
  };
  struct Session {
    std::shared_ptr<Socket> socket;
    const SimProcess* client = nullptr;
    std::string arrived{};
    std::map<uint64_t, WatchState> watches{};
  };
  /// What happens to a call that is not affected by other faults.
  struct Fate {
    bool refused = false;
    bool unanswered = false;
    Duration before{};
    Duration after{};
  };
  struct Job {
    uint64_t session;
    const SimProcess* by;
    EtcdRequest request;
    Fate fate;
  };

  void Accept(std::shared_ptr<Socket> socket);
  void Read(uint64_t session);
  void Take(uint64_t session, EtcdRequest request);
  void Execute(const Job& job);
  /// Handles a call while there is no leader.
  void Stall(const Job& job);
  EtcdReply Perform(const EtcdRequest& request);
  void Answer(uint64_t session, EtcdReply reply, Duration after);
  void Send(uint64_t session, EtcdReply reply);
  EtcdReply Failure(uint64_t id, Code code, std::string_view why) const;

  void BeginWatch(uint64_t session, uint64_t id, const EtcdRequest::Watch& watch);
  void EndWatch(uint64_t session, uint64_t id, const Error& why);
  /// After the store has changed.
  void SendToWatches(const SimProcess* by);
  void SendLater(uint64_t session, uint64_t id, WatchState& watch);
  void SendToWatch(uint64_t session, uint64_t id);

  void LookAtLeases();
  void EndElection();
  void Note(std::string_view what);
  void Close(uint64_t session);

  Fate DrawFate();
  Duration Draw(Duration most);
  bool OneIn(uint64_t n) { return prng_.Below(n) == 0; }
  WorldTime now() const;

  Network& network_;
  Trace& trace_;
  EtcdFaults faults_;
  Prng prng_;
  EtcdState state_;
  SimProcess* process_ = nullptr;
  int64_t sent_revision_ = 0;  // the revision up to which watches have been sent events, or will be
  WorldTime electing_until_{};
  uint64_t elections_ = 0;
  uint64_t lives_ = 0;
  std::map<uint64_t, Session> sessions_;  // by connection
  PostOffice<EtcdRequest> requests_;
  PostOffice<EtcdReply> replies_;
};

}  // namespace muster::sim
