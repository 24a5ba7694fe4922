// A store's operations as transactions and watches of etcd. Blocks the caller's thread. Any thread,
// any number of calls at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etcd/calls.h"
#include "etcd/layout.h"

namespace muster {

/// Errors, besides those of each operation: kUnavailable (out of reach until the time was over;
/// also a write of which nobody knows whether it happened, which the message says), kTimeout (the
/// keys did not come, or others were faster again and again), kInvalid (etcd refuses it: too large,
/// not permitted). Times of zero or less are no limit.
class EtcdStoreClient {
 public:
  using Time = std::chrono::milliseconds;
  using Keys = std::vector<std::string>;

  /// All that is written goes with `lease`; 0: nothing goes by itself.
  EtcdStoreClient(std::shared_ptr<EtcdCalls> calls, std::string_view prefix, int64_t lease);

  const std::shared_ptr<EtcdCalls>& calls() const { return calls_; }

  /// Whether etcd answers, and lets us read.
  Status Reach(Time limit);

  Status Set(std::string_view key, std::string_view value, Time limit);
  Result<std::string> Get(std::string_view key, Time limit);
  /// kInvalid, kOutOfRange: the value is no number of 64 bits. An empty one counts as 0.
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

  Instant Deadline(Time limit) const;
  /// Later than that: what is there is told also to whom has no time to wait for it.
  Instant AnswerBy(Instant deadline) const;
  EtcdOperation Put(std::string etcd_key, std::string_view value) const;
  /// A transaction with what it is to the caller: "Set of 'k'".
  Result<EtcdAnswer> Commit(const EtcdTransaction& transaction, Instant deadline,
                            std::string_view what, std::string_view key) const;
  /// Reads a value, and replaces it by what `next` makes of it, until nobody has been faster.
  /// nullopt from `next`: nothing is to be replaced.
  using Next = std::function<Result<std::optional<std::string>>(const EtcdPair* present)>;
  Status Replace(std::string_view key, std::string_view what, Time limit, const Next& next) const;
  Status WaitFor(Missing missing, Time limit, Instant deadline) const;
  Status Look(Missing& missing, Instant deadline, int64_t& revision) const;
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
