// A cluster of etcd v3, as an event loop sees it. gRPC in production, memory in simulation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/text.h"
#include "base/time.h"
#include "os/ports/loop.h"

namespace muster {

/// Where a cluster is, and who we are to it.
struct EtcdAccess {
  std::vector<Endpoint> endpoints;  ///< Any of them will do; the others are there for its end.
  bool tls = false;
  std::string ca_file{};    ///< Of whom the servers' certificates are; empty: the system's.
  std::string cert_file{};  ///< Ours, if they ask for one; with its key.
  std::string key_file{};
  std::string user{};  ///< Empty: nobody in particular.
  std::string password{};

  /// "etcd at h1:2379,h2:2379", for messages.
  std::string ToString() const {
    std::string text;
    for (const Endpoint& each : endpoints)
      text += Concat(text.empty() ? "etcd at " : ",", each.ToString());
    return text;
  }
};

/// A key with its value, and the revisions of the whole store at which it came and last changed.
struct EtcdPair {
  std::string key;
  std::string value{};
  int64_t created = 0;
  int64_t changed = 0;
  int64_t lease = 0;  ///< 0: none. With its lease, the key goes.
  bool operator==(const EtcdPair&) const = default;
};

/// One key (`end` is empty), or all keys from `begin` to before `end`.
struct EtcdRange {
  std::string begin;
  std::string end{};
  int64_t limit = 0;  ///< Of a read: how many pairs at most; 0: all.
  bool keys_only = false;
};
/// All keys that begin so, which is text: no byte of it is 0xff.
inline EtcdRange EtcdPrefix(std::string_view prefix) {
  EtcdRange range{.begin = std::string(prefix), .end = std::string(prefix)};
  range.end.back() = static_cast<char>(range.end.back() + 1);
  return range;
}

/// What must hold of one key, in the moment of a transaction.
struct EtcdCondition {
  enum class Kind : uint8_t {
    kCreatedAt,  ///< It came at `revision`; 0: it is not there.
    kChangedAt,  ///< It last changed at `revision`; 0: it is not there.
    kValueIs,    ///< `value`; a key that is not there has none.
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

/// All of `then` if all conditions hold, all of `otherwise` if not; in one moment, and for good.
struct EtcdTransaction {
  std::vector<EtcdCondition> conditions{};
  std::vector<EtcdOperation> then{};
  std::vector<EtcdOperation> otherwise{};
};
/// What a server takes in one transaction, unless told otherwise: so many conditions, so many
/// operations, and so many bytes in all.
inline constexpr size_t kEtcdOperationsMax = 128;
inline constexpr size_t kEtcdRequestBytesMax = 1'536 * 1'024;

struct EtcdAnswer {
  bool held = false;     ///< Whether the conditions did.
  int64_t revision = 0;  ///< Of the store, with this transaction.
  struct Result {
    std::vector<EtcdPair> pairs{};  ///< Of kGet, by key.
    int64_t count = 0;              ///< How many there are, or were deleted.
  };
  std::vector<Result> results{};  ///< One for each operation.
};

struct EtcdLease {
  int64_t id = 0;
  Duration ttl{};  ///< As granted: servers have a floor, about 2 s.
};

struct EtcdChange {
  bool deleted = false;
  EtcdPair pair;  ///< Of a deletion: the key, and `changed`.
};

/// Who hears of changes, on the loop's thread. May destroy its watch from inside.
class EtcdWatcher {
 public:
  virtual ~EtcdWatcher() = default;

  /// Every change once, in the order of revisions; those of one revision together.
  virtual void OnChanges(const std::vector<EtcdChange>& changes) = 0;
  /// The cluster is out of reach, or was: the watch goes on where it was.
  virtual void OnTrouble(const std::string& why) = 0;
  /// The watch is over. kNotFound: the server does not know what happened after the revision asked
  /// for (compaction; or it was restored from older data): read anew, watch from there. Else:
  /// repeating will not help.
  virtual void OnEnd(const Error& why) = 0;
};

/// Goes on until destroyed.
class EtcdWatch {
 public:
  virtual ~EtcdWatch() = default;
};

/// One client. Lives on its loop's thread; what is under way when it is destroyed is not reported.
///
/// Calls end within their patience, later, on the loop, exactly once. Errors: kUnavailable (no
/// server was reached: nothing happened), kTimeout (it may have happened), kNotFound (no such
/// lease), kInvalid (refused: not permitted, wrong password, too large; repeating will not help).
/// Messages name the endpoint. Reads and transactions are linearizable.
class Etcd {
 public:
  virtual ~Etcd() = default;

  virtual void Commit(EtcdTransaction transaction, Duration patience,
                      std::function<void(Result<EtcdAnswer>)> done) = 0;
  virtual void Grant(Duration ttl, Duration patience,
                     std::function<void(Result<EtcdLease>)> done) = 0;
  /// Makes the lease last for its whole time to live again, which is the answer. From when the call
  /// was made, to be safe.
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

/// Makes clients, real or simulated ones, on the thread of `loop`. The last reference must be given
/// up there, too.
using EtcdConnector = std::function<Result<std::shared_ptr<Etcd>>(Loop& loop)>;

}  // namespace muster
