// The writes of the leader of a run: in order, in transactions of a size that etcd takes, each
// applied at most once, and only while the leader still leads.
//
// A transaction whose answer is lost is sent again. If the first one is applied late, it must not
// overwrite newer values. So each transaction changes one key, the turn, on condition that nothing
// has changed it since the previous transaction.
//
// If a key is written again before its first value was sent, only the later value is sent. Lives on
// its loop's thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/lifetime.h"
#include "etcd/etcd_port.h"
#include "os/ports/loop.h"
#include "store/client/backoff.h"

namespace muster {

/// The conditions of everything that a leader writes or reads: `fence` is still the key that makes
/// it the leader. The revision alone is not enough: an etcd that is restored from older data may
/// give the same revision to another leader's key.
std::vector<EtcdCondition> IfLeading(const EtcdPair& fence);

struct EtcdTurn {
  std::string key;
  int64_t changed = 0;  ///< The revision of its last change, when the leader read all keys.
  std::string name;     ///< Of this outbox; no other one that writes this key has it.
  int64_t lease = 0;
};

class EtcdOutbox {
 public:
  /// What happened to a write, on the loop's thread. kClosed: this node no longer leads. kConflict:
  /// an earlier outbox of this leader has written. Nothing more is written after these two, and the
  /// outbox may be destroyed. Other errors: it tries again, with growing pauses.
  using OnWrite = std::function<void(const Status& status)>;

  /// `fence`: of IfLeading().
  EtcdOutbox(Etcd& etcd, Loop& loop, EtcdPair fence, EtcdTurn turn, uint64_t seed,
             OnWrite on_write);

  void Put(std::string key, std::string value, int64_t lease);
  void Delete(EtcdRange range);
  /// Later writes wait until all earlier ones are applied.
  void Seal() { sealed_ = true; }
  /// Whether the turn, which last changed at that revision, is as this outbox left it. True also
  /// while a write is under way, when that is unknown.
  bool IsTurn(int64_t changed) const { return !sent_.empty() || changed == turn_.changed; }

 private:
  using Batch = std::map<std::string, EtcdOperation>;  // by key

  Batch& Open();
  void Send();
  void Try();
  /// The conditions did not hold. True: an earlier attempt had been applied. False: the outbox
  /// ends.
  bool WasApplied(const EtcdAnswer& answer);
  void OnSent(Result<EtcdAnswer> answer);

  Etcd& etcd_;
  Loop& loop_;
  const EtcdPair fence_;
  EtcdTurn turn_;
  const uint64_t seed_;
  const OnWrite on_write_;
  std::deque<Batch> batches_;
  bool sealed_ = true;             // nothing is added to the last batch
  std::vector<std::string> sent_;  // keys of the first batch that are being sent
  EtcdTransaction pending_;        // with these keys, until it is known to be applied
  uint64_t serial_ = 0;            // of pending_
  bool posted_ = false;
  bool over_ = false;
  std::optional<Backoff> backoff_;
  std::unique_ptr<Timer> timer_;
  Lifetime lifetime_;
};

}  // namespace muster
