// What a cluster of etcd knows: pairs, revisions, leases. Pure: its owner hands in the time.
// What etcd promises of it is here; what goes wrong on the way to it is in sim/etcd.h.
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
/// How long an election takes at least, which leases get on top of their time when one is over.
inline constexpr Duration kEtcdElection = 1s;

/// Whether the key is in it. An end of one zero byte means: all keys that follow.
bool Contains(const EtcdRange& range, std::string_view key);

class EtcdState {
 public:
  explicit EtcdState(uint64_t seed) : prng_(seed) {}

  int64_t revision() const { return revision_; }
  /// What happened before is forgotten.
  int64_t compacted() const { return compacted_; }
  const std::map<std::string, EtcdPair, std::less<>>& pairs() const { return pairs_; }
  const EtcdPair* Find(std::string_view key) const;

  /// kInvalid (too large, or a key is written twice), kNotFound (no such lease): nothing happened.
  Result<EtcdAnswer> Commit(const EtcdTransaction& transaction);

  /// In whole seconds, and not below the floor.
  EtcdLease Grant(Duration ttl, Instant now);
  /// kNotFound. Not of a lease that has expired and is still there: it cannot be saved.
  Result<Duration> KeepAlive(int64_t lease, Instant now);
  bool IsExpired(int64_t lease, Instant now) const;
  Status Revoke(int64_t lease);
  /// Ends those that have expired, the oldest first, so many at most: each with a revision of its
  /// own. Returns how many.
  size_t Expire(Instant now, size_t most);
  /// A new leader does not know how old the leases are: they begin anew.
  void Promote(Instant now);
  size_t leases() const { return leases_.size(); }

  /// All that is known now gives way to what `backup` knew, a copy of an earlier state. Lease ids
  /// are not used twice, as etcd draws them from its clock.
  void Restore(const EtcdState& backup);

  /// Forgets what was before that revision.
  void Compact(int64_t revision);
  /// Changes in the range from that revision on, in their order; those of one revision together.
  /// Not below compacted().
  std::vector<EtcdChange> ChangesFrom(const EtcdRange& range, int64_t revision) const;
  /// The revision of the first of them.
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
