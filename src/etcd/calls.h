// Etcd for those who may block: the client lives on a loop's thread of its own, callers wait here
// for what it hears. Any thread, any number of calls at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "etcd/etcd_port.h"
#include "os/ports/system.h"
#include "store/client/backoff.h"

namespace muster {

/// Whether it changes nothing, whatever its conditions: then it may be repeated at any time.
bool OnlyReads(const EtcdTransaction& transaction);

/// Every call may be kInterrupted (base/interruption.h); a write may have happened all the same.
class EtcdCalls {
 public:
  /// Does not wait for etcd. What the connector returns; what System::StartLoop() throws.
  static Result<std::shared_ptr<EtcdCalls>> Open(const EtcdConnector& connector, System& around);
  /// When no call is under way any more.
  ~EtcdCalls();
  EtcdCalls(const EtcdCalls&) = delete;
  EtcdCalls& operator=(const EtcdCalls&) = delete;

  /// Repeats what did not happen (kUnavailable) until the deadline, and what only reads also if it
  /// got no answer. A write of which nobody knows whether it happened is kTimeout, at once:
  /// repeated blindly, the first one could still arrive after the second.
  Result<EtcdAnswer> Commit(const EtcdTransaction& transaction, Instant deadline);
  /// A lease that was granted unheard ends by itself: repeated in any case.
  Result<EtcdLease> Grant(Duration ttl, Instant deadline);
  /// Likewise. kNotFound: it has ended before.
  Status Revoke(int64_t lease, Instant deadline);

  /// Blocks until `enough` says so of a change in one of the ranges, being shown all from
  /// `revision` on, in their order; on the loop's thread, one at a time, and never after this has
  /// returned. kTimeout: the deadline. kNotFound: etcd has forgotten what happened then: read anew.
  /// Other errors: repeating will not help.
  Status Await(const std::vector<EtcdRange>& ranges, int64_t revision, Instant deadline,
               const std::function<bool(const EtcdChange&)>& enough);

  Clock& clock() { return clock_; }
  /// Different each time, for whoever must not try again in step with the others.
  uint64_t NextSeed() { return seed_ + ++seeds_; }
  /// "etcd at 127.0.0.1:2379", for messages.
  const std::string& name() const { return name_; }

 private:
  explicit EtcdCalls(System& around);

  /// One call, from any thread: `start` begins it on the loop. Who is interrupted waits for the
  /// answer for the time of `grace`: a living etcd is heard, and what was written is worth knowing.
  template <typename T>
  Result<T> Ask(Duration grace, const std::function<void(std::function<void(Result<T>)>)>& start);
  /// `attempt(patience)` until it says something else than that nothing happened; or, with
  /// `repeat_unheard`, nothing at all.
  template <typename T>
  Result<T> Repeat(Instant deadline, bool repeat_unheard,
                   const std::function<Result<T>(Duration)>& attempt);

  System& around_;
  Clock& clock_;
  const uint64_t seed_;
  std::atomic<uint64_t> seeds_ = 0;
  std::string name_;
  const std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<Etcd> etcd_;  // on the loop's thread only
};

}  // namespace muster
