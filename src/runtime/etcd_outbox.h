// What the leader of a run writes into etcd: in order, in transactions of a size that etcd takes,
// each of them only as long as the leader still leads.
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
#include "ports/etcd.h"
#include "ports/loop.h"
#include "runtime/backoff.h"

namespace muster {

class EtcdOutbox {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Somebody else leads, or nobody. Nothing more is written. May destroy the outbox.
    virtual void OnDeposed() = 0;
    /// Tries again, with growing pauses.
    virtual void OnWriteFailed(const Error& why) = 0;
    virtual void OnWritten() = 0;
  };

  /// `fence` holds as long as the leader leads.
  EtcdOutbox(Etcd& etcd, Loop& loop, EtcdCondition fence, uint64_t seed, Owner& owner);

  void Put(std::string key, std::string value, int64_t lease);
  void Delete(EtcdRange range);
  /// What follows is not written before all that came until now is.
  void Seal();

  bool empty() const { return batches_.empty(); }

 private:
  using Batch = std::map<std::string, EtcdOperation>;  // by key

  Batch& Open();
  void Send();
  void OnSent(Result<EtcdAnswer> answer);

  Etcd& etcd_;
  Loop& loop_;
  const EtcdCondition fence_;
  const uint64_t seed_;
  Owner& owner_;
  std::deque<Batch> batches_;
  bool sealed_ = true;             // the last batch takes no more
  std::vector<std::string> sent_;  // the keys under way, of the first batch
  bool posted_ = false;
  bool over_ = false;
  std::optional<Backoff> backoff_;
  std::unique_ptr<Timer> timer_;
  Lifetime lifetime_;
};

}  // namespace muster
