// A client of etcd for threads that may block: it runs on its own loop thread, and callers wait
// here for its answers. Any thread, any number of calls at a time.
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

/// Every call may return kInterrupted (base/interruption.h). An interrupted write may have
/// happened.
class EtcdCalls {
 public:
  /// Starts the thread, and connects when Client() is called. Throws what System::StartLoop()
  /// throws.
  EtcdCalls(EtcdConnector connector, System& around);
  /// Connects, without waiting for etcd. Returns the connector's error.
  static Result<std::shared_ptr<EtcdCalls>> Open(EtcdConnector connector, System& around);
  /// Only after all calls have returned, and not on the loop's thread.
  ~EtcdCalls();
  EtcdCalls(EtcdCalls&&) = delete;

  /// The thread and the client, for other objects that share them: a process has one connection.
  LoopThread& thread() { return *thread_; }
  /// Connects on the first call. On the loop's thread only.
  Result<std::shared_ptr<Etcd>> Client();

  // The calls below need a connected client: after Open(), or a successful Client().

  /// Repeats a transaction that did not happen (kUnavailable) until the deadline; a transaction
  /// that only reads is also repeated if it got no answer. A write without an answer returns
  /// kTimeout immediately: if it were repeated blindly, the first one could still arrive after the
  /// second.
  Result<EtcdAnswer> Commit(const EtcdTransaction& transaction, Instant deadline);

  /// Blocks until `enough` returns true for a change in one of the ranges. It is called with all
  /// changes from `revision` on, in their order, one at a time, on the loop's thread, and never
  /// after this has returned. kTimeout: the deadline. kNotFound: etcd has compacted that revision;
  /// read again. Other errors: repeating will not help.
  Status Await(const std::vector<EtcdRange>& ranges, int64_t revision, Instant deadline,
               const std::function<bool(const EtcdChange&)>& enough);

  Clock& clock() { return around_.clock(); }
  /// Different each time, so that callers do not retry in step.
  uint64_t NextSeed() { return seed_ + ++seeds_; }
  /// "etcd at 127.0.0.1:2379", for messages.
  const std::string& name() const { return name_; }

 private:
  /// One attempt. An interrupted caller still waits briefly for the answer: a live etcd answers in
  /// that time, and then it is known whether a write happened.
  Result<EtcdAnswer> Attempt(const EtcdTransaction& transaction, Duration patience);

  System& around_;
  const uint64_t seed_;
  std::atomic<uint64_t> seeds_ = 0;
  const EtcdConnector connector_;
  std::string name_;  // written before the first call
  const std::unique_ptr<LoopThread> thread_;
  std::shared_ptr<Etcd> etcd_;  // on the loop's thread only
};

}  // namespace muster
