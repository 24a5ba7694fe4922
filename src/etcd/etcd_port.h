// The port to a cluster of etcd v3, for an event loop: gRPC in production, memory in simulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "os/ports/loop.h"

namespace muster {

/// A key with its value, and the store's revisions at which it was created and last changed.
struct EtcdPair {
  std::string key;
  std::string value{};
  int64_t created = 0;
  int64_t changed = 0;
  int64_t lease = 0;  ///< 0: none. The key is deleted when its lease ends.
  bool operator==(const EtcdPair&) const = default;
};

/// One key (`end` is empty), or all keys from `begin` to before `end`.
struct EtcdRange {
  std::string begin;
  std::string end{};
  int64_t limit = 0;  ///< Of a read: how many pairs at most; 0: all.
  bool keys_only = false;
};
/// All keys with this prefix, in which no byte is 0xff.
inline EtcdRange EtcdPrefix(std::string_view prefix) {
  EtcdRange range{.begin = std::string(prefix), .end = std::string(prefix)};
  range.end.back() = static_cast<char>(range.end.back() + 1);
  return range;
}

/// The first key of the range, without its value.
inline EtcdRange EtcdFirstKey(EtcdRange range) {
  range.limit = 1;
  range.keys_only = true;
  return range;
}

/// A condition on one key of a transaction.
struct EtcdCondition {
  enum class Kind : uint8_t {
    kCreatedAt,  ///< It was created at `revision`; 0: it does not exist.
    kChangedAt,  ///< It last changed at `revision`; 0: it does not exist.
    kValueIs,    ///< `value`; a key that does not exist has none.
  };
  Kind kind{};
  std::string key;
  int64_t revision = 0;
  std::string value{};
};

struct EtcdOperation {
  enum class Kind : uint8_t { kPut, kGet, kDelete };
  Kind kind{};
  EtcdRange range;  ///< Of kPut: `begin` is the key.
  std::string value{};
  int64_t lease = 0;
};

inline EtcdCondition IfCreatedAt(std::string key, int64_t revision) {
  return {EtcdCondition::Kind::kCreatedAt, std::move(key), revision};
}
inline EtcdCondition IfChangedAt(std::string key, int64_t revision) {
  return {EtcdCondition::Kind::kChangedAt, std::move(key), revision};
}
inline EtcdOperation EtcdGet(EtcdRange range) {
  return {EtcdOperation::Kind::kGet, std::move(range)};
}
inline EtcdOperation EtcdGet(std::string key) { return EtcdGet(EtcdRange{std::move(key)}); }
inline EtcdOperation EtcdPut(std::string key, std::string value, int64_t lease) {
  return {EtcdOperation::Kind::kPut, {std::move(key)}, std::move(value), lease};
}
inline EtcdOperation EtcdDelete(EtcdRange range) {
  return {EtcdOperation::Kind::kDelete, std::move(range)};
}

/// Executes atomically all of `then` if all conditions hold, and all of `otherwise` if not.
struct EtcdTransaction {
  std::vector<EtcdCondition> conditions{};
  std::vector<EtcdOperation> then{};
  std::vector<EtcdOperation> otherwise{};
};
/// Whether the transaction changes nothing, whatever its conditions. It can then be repeated.
inline bool OnlyReads(const EtcdTransaction& transaction) {
  const auto reads = [](const EtcdOperation& each) {
    return each.kind == EtcdOperation::Kind::kGet;
  };
  return std::ranges::all_of(transaction.then, reads) &&
         std::ranges::all_of(transaction.otherwise, reads);
}

/// The limits of a server in its default configuration: conditions, operations and bytes of one
/// transaction.
inline constexpr size_t kEtcdOperationsMax = 128;
inline constexpr size_t kEtcdRequestBytesMax = 1'536 * 1'024;

/// How long the rendezvous waits for an answer, and its pauses between attempts.
inline constexpr Duration kEtcdPatience = 5s;
inline constexpr Duration kEtcdFirstPause = 20ms;
inline constexpr Duration kEtcdLongestPause = 1s;

struct EtcdAnswer {
  bool held = false;     ///< Whether the conditions held.
  int64_t revision = 0;  ///< The store's revision after this transaction.
  struct Result {
    std::vector<EtcdPair> pairs{};  ///< Of kGet, by key.
    int64_t count = 0;              ///< The number of keys in the range, or of those deleted.
  };
  std::vector<Result> results{};  ///< One for each operation.

  /// The first pair of a read; null: there is none.
  const EtcdPair* Pair(size_t result = 0) const {
    const std::vector<EtcdPair>& pairs = results.at(result).pairs;
    return pairs.empty() ? nullptr : &pairs.front();
  }
};

struct EtcdLease {
  int64_t id = 0;
  Duration ttl{};  ///< As granted: servers have a floor, about 2 s.
};

struct EtcdChange {
  bool deleted = false;
  EtcdPair pair;  ///< Of a deletion: the key, and `changed`.
};

/// Receives changes on the loop's thread. May destroy its watch from inside.
class EtcdWatcher {
 public:
  virtual ~EtcdWatcher() = default;

  /// Reports every change once, in the order of revisions; changes of one revision together.
  virtual void OnChanges(const std::vector<EtcdChange>& changes) = 0;
  /// The connection was lost. The watch continues at its revision.
  virtual void OnTrouble(const std::string& why) = 0;
  /// The watch has ended. kNotFound: the server does not have the changes since the given revision
  /// (it has compacted them, or was restored from older data): read again, and watch from there.
  /// Other errors: repeating will not help.
  virtual void OnEnd(const Error& why) = 0;
};

/// Lasts until it is destroyed.
class EtcdWatch {
 public:
  virtual ~EtcdWatch() = default;
};

/// One client. Lives on its loop's thread. When it is destroyed, open calls do not report.
///
/// Each call reports exactly once, later, on the loop, within its patience. Errors: kUnavailable
/// (no server was reached, nothing happened), kTimeout (it may have happened), kNotFound (no such
/// lease), kInvalid (refused: not permitted, wrong password, too large; repeating will not help).
/// Messages name the endpoint. Reads and transactions are linearizable.
class Etcd {
 public:
  virtual ~Etcd() = default;

  virtual void Commit(EtcdTransaction transaction, Duration patience,
                      std::function<void(Result<EtcdAnswer>)> done) = 0;
  virtual void Grant(Duration ttl, Duration patience,
                     std::function<void(Result<EtcdLease>)> done) = 0;
  /// Renews the lease. The answer is its time to live, to be counted from before the call.
  virtual void KeepAlive(int64_t lease, Duration patience,
                         std::function<void(Result<Duration>)> done) = 0;
  /// Ends the lease, and deletes its keys.
  virtual void Revoke(int64_t lease, Duration patience, std::function<void(Status)> done) = 0;
  /// Changes in the range from `revision` on (that one included).
  virtual std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                           EtcdWatcher& watcher) = 0;

  /// "etcd at 127.0.0.1:2379", for messages.
  virtual std::string Describe() const = 0;
};

/// Creates clients, real or simulated ones, on the thread of `loop`. The last reference must be
/// released there, too.
using EtcdConnector = std::function<Result<std::shared_ptr<Etcd>>(Loop& loop)>;

}  // namespace muster
