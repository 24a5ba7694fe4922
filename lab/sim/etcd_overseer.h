// Observes a simulated etcd: the agreement of a run's nodes, its leader, and whether only the
// leader writes the leader's keys.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etcd/records.h"
#include "sim/checkers.h"
#include "sim/etcd.h"

namespace muster::sim {

class EtcdOverseer {
 public:
  /// Both outlive it. `say` receives lines for the story.
  EtcdOverseer(const SimEtcd& etcd, Checkers& checkers, std::string_view prefix,
               std::string_view run_id, std::function<void(const std::string&)> say);

  /// The cluster's SimEtcd::on_change.
  void OnChange(const SimProcess* by, int64_t revision);

  /// A closed run whose members are all gone may begin again: that is its next life.
  Epoch epoch() const { return epoch_; }
  bool was_closed() const { return was_closed_; }
  /// The last session of the node in that process, and its lease. A node that learns of its loss
  /// has lost its place.
  struct Session {
    int64_t created = 0;
    int64_t lease = 0;
  };
  Session SessionOf(const SimProcess& process) const;

  /// The last round according to etcd; -1: none.
  int64_t Round() const;

  /// Keeps a copy of etcd's data, for Restore().
  void BackUp();
  size_t backups() const { return backups_.size(); }
  /// The cluster, whose process is dead, gets the data of that backup. Another life begins, and
  /// promises made since the backup do not hold.
  void Restore(SimEtcd& etcd, size_t backup);

  /// The lease of the node in that process has expired, and with it its session: the node must have
  /// noticed.
  std::function<void(const SimProcess& process, int64_t session)> on_expired{};

 private:
  void SeeWriter(const SimProcess* by, const EtcdChange& change);
  void SeeMember(const SimProcess* by, const EtcdChange& change);
  void SeeRun(const EtcdChange& change);
  /// None: it is incomplete.
  std::optional<RendezvousState> StateOf(const wire::EtcdRun& run);
  void CheckSurvivors();
  bool IsMember(std::string_view key) const { return key.starts_with(keys_.Members()); }

  const SimEtcd& etcd_;
  Checkers& checkers_;
  const wire::EtcdKeys keys_;
  const std::function<void(const std::string&)> say_;
  const SimProcess* leader_ = nullptr;
  Epoch epoch_ = 1;
  std::optional<int64_t> closed_at_;  // the revision, as long as a member is left
  bool is_closed_ = false;
  bool was_closed_ = false;
  struct Member {
    const SimProcess* process;  ///< May be unknown: the node died before its connection was
                                ///< announced.
    int64_t created;
  };
  using Members = std::map<std::string, Member, std::less<>>;
  Members members_;                                // as of the revision that is being checked
  std::map<const SimProcess*, Session> sessions_;  // the last session of each process
  struct Backup {
    EtcdState state;
    const SimProcess* leader;
    std::optional<int64_t> closed_at;
    bool is_closed;
    Members members;
  };
  std::vector<Backup> backups_;
};

}  // namespace muster::sim
