// What the leader of a run writes into etcd: in order, in transactions of a size that etcd takes,
// each of them only as long as the leader still leads, and once.
//
// A transaction whose answer is lost is made again. If the first one is applied after all, it may
// be late, and must not write over what came since: each of them changes one key, the turn, and is
// void if that is not as the one before has left it.
//
// Where the same key is written again before its turn has come, the later value goes out alone.
// Lives on its loop's thread.
#pragma once

#include <cstddef>
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

/// The key that makes a node the leader. The revision alone would do, were it not for an etcd that
/// is restored from older data: it may give the same revision to another leader's key.
struct EtcdFence {
  std::string key;
  int64_t created = 0;
  std::string value;

  std::vector<EtcdCondition> Conditions() const;
};

struct EtcdTurn {
  std::string key;
  int64_t changed = 0;  ///< The revision at which it was, when the leader read everything.
  std::string name;     ///< Of this outbox, and no other that writes this key.
  int64_t lease = 0;
};

class EtcdOutbox {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Somebody else leads, or nobody. Nothing more is written. May destroy the outbox.
    virtual void OnDeposed() = 0;
    /// Something was written that is not of this outbox. Nothing more is written. May destroy it.
    virtual void OnOvertaken() = 0;
    /// Tries again, with growing pauses.
    virtual void OnWriteFailed(const Error& why) = 0;
    virtual void OnWritten() = 0;
  };

  /// The key of `fence` is as it says as long as the leader leads.
  EtcdOutbox(Etcd& etcd, Loop& loop, EtcdFence fence, EtcdTurn turn, uint64_t seed, Owner& owner);

  void Put(std::string key, std::string value, int64_t lease);
  void Delete(EtcdRange range);
  /// What follows is not written before all that came until now is.
  void Seal();
  /// Whether the turn, last changed at that revision, is as this outbox has left it; or it cannot
  /// be told, for a write is under way.
  bool IsTurn(int64_t changed) const { return !sent_.empty() || changed == turn_.changed; }

 private:
  using Batch = std::map<std::string, EtcdOperation>;  // by key

  Batch& Open();
  void Send();
  void Try();
  /// Not by this try: by an earlier one whose answer was lost. Or not at all, and it is over.
  bool WasMade(const EtcdAnswer& answer);
  void OnSent(Result<EtcdAnswer> answer);

  Etcd& etcd_;
  Loop& loop_;
  const EtcdFence fence_;
  EtcdTurn turn_;
  const uint64_t seed_;
  Owner& owner_;
  std::deque<Batch> batches_;
  bool sealed_ = true;             // the last batch takes no more
  std::vector<std::string> sent_;  // the keys under way, of the first batch
  EtcdTransaction pending_;        // what they are in, until it is known to be made
  uint64_t serial_ = 0;            // of it
  bool posted_ = false;
  bool over_ = false;
  std::optional<Backoff> backoff_;
  std::unique_ptr<Timer> timer_;
  Lifetime lifetime_;
};

}  // namespace muster
