// The data of a cluster of etcd: pairs, revisions, leases. Pure: its owner passes the time. It
// implements what etcd promises about its data; sim/etcd.h adds delays and faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/result.h"
#include "base/time.h"
#include "etcd/etcd_port.h"

namespace muster::sim {

inline constexpr Duration kEtcdLeaseMin = 2s;
/// The shortest election. Leases are extended by it when the election ends.
inline constexpr Duration kEtcdElection = 1s;

/// Whether the key is in it. An end of one zero byte means: all keys that follow.
bool Contains(const EtcdRange& range, std::string_view key);

class EtcdState {
 public:
  explicit EtcdState(uint64_t seed) : prng_(seed) {}

  int64_t revision() const { return revision_; }
  /// History before this revision is compacted.
  int64_t compacted() const { return compacted_; }
  const std::map<std::string, EtcdPair, std::less<>>& pairs() const { return pairs_; }
  const EtcdPair* Find(std::string_view key) const;

  /// kInvalid (too large, or a key is written twice), kNotFound (no such lease): nothing happened.
  Result<EtcdAnswer> Commit(const EtcdTransaction& transaction);

  /// In whole seconds, and not below the floor.
  EtcdLease Grant(Duration ttl, Instant now);
  /// kNotFound: also for a lease that has expired and is still there, because it cannot be saved.
  Result<Duration> KeepAlive(int64_t lease, Instant now);
  bool IsExpired(int64_t lease, Instant now) const;
  Status Revoke(int64_t lease);
  /// Ends expired leases, the oldest first, at most so many, each with a revision of its own.
  /// Returns how many.
  size_t Expire(Instant now, size_t most);
  /// A new leader does not know how old the leases are: they start again.
  void Promote(Instant now);
  size_t leases() const { return leases_.size(); }

  /// Replaces all data by that of `backup`, a copy of an earlier state. Lease ids are not used
  /// twice: etcd draws them from its clock.
  void Restore(const EtcdState& backup);

  /// Removes the history before that revision.
  void Compact(int64_t revision);
  /// Changes in the range from that revision on, in order; those of one revision together. Not
  /// below compacted().
  std::vector<EtcdChange> ChangesFrom(const EtcdRange& range, int64_t revision) const;
  /// The revision of the first such change.
  std::optional<int64_t> FirstChangeFrom(const EtcdRange& range, int64_t revision) const;

 private:
  struct Lease {
    Duration ttl{};
    Instant ends{};
    std::set<std::string> keys{};
  };
  using Changes = std::vector<EtcdChange>;

  static Status Validate(const EtcdTransaction& transaction);
  bool Holds(const EtcdCondition& condition) const;
  EtcdAnswer::Result Apply(const EtcdOperation& operation, Changes& changes);
  void Put(const EtcdOperation& operation, Changes& changes);
  int64_t Delete(const EtcdRange& range, Changes& changes);
  EtcdAnswer::Result Get(const EtcdRange& range) const;
  void Remember(Changes changes);

  Prng prng_;
  int64_t revision_ = 1;
  int64_t compacted_ = 0;
  std::map<std::string, EtcdPair, std::less<>> pairs_;
  std::map<int64_t, Lease> leases_;
  std::map<int64_t, Changes> history_;  // by revision
};

}  // namespace muster::sim
