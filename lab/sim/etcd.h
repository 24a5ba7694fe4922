// A cluster of etcd in virtual time: one history of revisions, leases on the cluster's clock,
// watches; behind the simulated network, at one address. It keeps etcd's promises and no others:
// calls of one client may overtake each other, watches are late, each by itself, and where an
// answer is lost, its outcome is unknown. Its data outlives the processes it runs in.
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

/// Switches. Elections, compactions, restarts, pauses and cut links come from its owner.
struct EtcdFaults {
  bool slow = false;         ///< Some calls take up to a second.
  bool lost = false;         ///< Some calls fail: before they had an effect, or after.
  bool watch_delay = false;  ///< Some watch events are up to three seconds late.
};

class SimEtcd {
 public:
  static constexpr uint16_t kPort = 2379;
  static constexpr Duration kLookAtLeases = 500ms;
  /// In each look: a thousand a second.
  static constexpr size_t kRevokedAtOnce = 500;

  SimEtcd(Network& network, Trace& trace, const EtcdFaults& faults, uint64_t seed);
  ~SimEtcd();
  SimEtcd(const SimEtcd&) = delete;
  SimEtcd& operator=(const SimEtcd&) = delete;

  /// Serves in this process (which outlives the cluster, dead or alive) from now on. After the
  /// process before was killed: the cluster has been started anew, and knows all that it knew.
  void Serve(SimProcess& process);

  // --- What goes wrong, from outside.
  /// There is no leader for so long. Some clients were connected to the one that is lost.
  void Elect(Duration time);
  /// Forgets all history before that revision.
  void Compact(int64_t revision);
  /// The cluster, whose process is dead, has the data of an earlier backup (a copy of state()) when
  /// it is started anew: its revision goes back, and what was written since is gone.
  void Restore(const EtcdState& backup);
  /// Done by an operator on the cluster's machines, not by a node.
  void Meddle(EtcdRequest request);
  /// No more faults; an election that is going on ends.
  void Heal();

  bool is_electing() const;
  const EtcdState& state() const { return state_; }
  Endpoint endpoint() const;
  Network& network() { return network_; }

  /// Makes clients for a process.
  EtcdConnector ConnectorOf(SimProcess& process);

  // --- For observers outside of the world.
  /// The store has a new revision, made by a client in that process; nullptr: a lease has expired.
  std::function<void(const SimProcess* by, int64_t revision)> on_change{};
  /// A process is about to receive that there is no such lease to keep alive.
  std::function<void(SimProcess& process, int64_t lease)> on_lease_lost{};

 private:
  friend class SimEtcdClient;

  struct WatchState {
    EtcdRange range;
    int64_t next = 0;     ///< The first revision that it has not been sent.
    bool is_due = false;  ///< Its next event is scheduled.
  };
  struct Session {
    std::shared_ptr<Socket> socket;
    const SimProcess* client = nullptr;
    std::string arrived{};
    std::map<uint64_t, WatchState> watches{};
  };
  /// How a call goes that nothing else goes wrong with.
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
  /// There is no leader.
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
  int64_t sent_revision_ = 0;  // up to which watches were sent events, or will be
  WorldTime electing_until_{};
  uint64_t elections_ = 0;
  uint64_t lives_ = 0;
  std::map<uint64_t, Session> sessions_;  // by connection
  PostOffice<EtcdRequest> requests_;
  PostOffice<EtcdReply> replies_;
};

}  // namespace muster::sim
