// A store's operations as transactions and watches of etcd. They block. Any thread, any number of
// calls at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etcd/calls.h"
#include "etcd/layout.h"

namespace muster {

/// Errors of all operations: kUnavailable (out of reach until the timeout; or a write without an
/// answer, which the message says), kTimeout (the keys did not come, or other clients were faster
/// each time), kInvalid (etcd refuses it: too large, not permitted). Timeouts of zero or less are
/// no limit.
class EtcdStoreClient {
 public:
  using Time = std::chrono::milliseconds;
  using Keys = std::vector<std::string>;

  /// All keys are written under `lease`; 0: without one.
  EtcdStoreClient(std::shared_ptr<EtcdCalls> calls, std::string_view prefix, int64_t lease);

  const std::shared_ptr<EtcdCalls>& calls() const { return calls_; }

  /// Whether etcd answers, and permits reading.
  Status Reach(Time limit);

  Status Set(std::string_view key, std::string_view value, Time limit);
  Result<std::string> Get(std::string_view key, Time limit);
  /// kInvalid, kOutOfRange: the value is not a 64-bit number. An empty one counts as 0.
  Result<int64_t> Add(std::string_view key, int64_t delta, Time limit);
  Result<std::string> CompareSet(std::string_view key, std::string_view expected,
                                 std::string_view desired, Time limit);
  Result<bool> Check(const Keys& keys, Time limit);
  Status Wait(const Keys& keys, Time limit);
  Result<bool> Delete(std::string_view key, Time limit);
  Result<int64_t> Count(Time limit);
  Result<Keys> ListKeys(Time limit);
  Status Append(std::string_view key, std::string_view suffix, Time limit);
  /// One transaction for as many keys as etcd takes in one (128), several for more.
  Result<Keys> MultiGet(const Keys& keys, Time limit);
  /// Likewise. As many values as keys.
  Status MultiSet(const Keys& keys, const Keys& values, Time limit);

  Status Push(std::string_view key, std::string_view value, Time limit);
  Result<std::string> Pop(std::string_view key, Time limit);
  /// nullopt: the queue is empty.
  Result<std::optional<std::string>> TryPop(std::string_view key, Time limit);
  Result<int64_t> QueueLength(std::string_view key, Time limit);

 private:
  struct Missing;
  struct First;
  struct Tail;

  // Between attempts of a write that other clients were faster at.
  static constexpr Duration kFirstPause = 1ms;
  static constexpr Duration kLongestPause = 100ms;

  Instant Deadline(Time limit) const;
  /// Some seconds later: a caller with no time to wait still gets what is there.
  Instant AnswerBy(Instant deadline) const;
  EtcdOperation Put(std::string etcd_key, std::string_view value) const;
  /// `what` and `key` are for messages: "Set of 'k'".
  Result<EtcdAnswer> Commit(const EtcdTransaction& transaction, Instant deadline,
                            std::string_view what, std::string_view key) const;
  /// Reads a value and replaces it by the result of `next`; again, if another client wrote
  /// meanwhile. nullopt from `next`: the value stays.
  using Next = std::function<Result<std::optional<std::string>>(const EtcdPair* present)>;
  Status Replace(std::string_view key, std::string_view what, Time limit, const Next& next) const;
  /// Waits before a write is tried again because other clients were faster `lost` times. Errors: no
  /// time is left, or the caller is interrupted.
  Status PauseAfterLoss(Backoff& backoff, std::string_view what, std::string_view key, Time limit,
                        Instant deadline, int64_t lost) const;
  /// EtcdCalls::Await(), with an error for the caller: which of the keys are missing. False: etcd
  /// has compacted the revision; read again.
  Result<bool> AwaitChange(const std::vector<EtcdRange>& ranges, int64_t revision, Time limit,
                           Instant deadline, const std::function<Keys()>& missing,
                           const std::function<bool(const EtcdChange&)>& enough) const;
  static Status MustFit(std::string_view what, std::string_view key, size_t bytes);
  Status WaitFor(Missing missing, Time limit, Instant deadline) const;
  Status FindMissing(Missing& missing, Instant deadline, int64_t& revision) const;
  Result<std::vector<std::optional<std::string>>> Read(const Keys& keys, Instant deadline) const;
  std::vector<EtcdOperation> LookAtTail(std::string_view key) const;
  Result<Tail> TailIn(const EtcdAnswer& answer, std::string_view key, Instant deadline) const;
  Result<First> FirstOf(std::string_view key, Instant deadline) const;
  Result<std::optional<std::string>> Take(std::string_view key, First first, Instant deadline,
                                          int64_t& revision) const;
  Error TimedOut(Time limit, const Keys& keys, const Error& why) const;

  const std::shared_ptr<EtcdCalls> calls_;
  const EtcdLayout layout_;
  const int64_t lease_;
};

}  // namespace muster
