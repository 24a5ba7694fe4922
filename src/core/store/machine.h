// The store machine: the key space, its queues, and the clients parked in WAIT and BARRIER.
//
// A request and the time go in; the reply comes out, and with it the clients whose waiting is over.
// No I/O, no clock, no thread: the driver serialises calls and sends what comes out. HashStore and
// StoreServer both drive this one machine.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/limits.h"
#include "base/time.h"
#include "core/store/client_id.h"
#include "core/store/key_table.h"
#include "core/store/queues.h"
#include "core/store/request.h"
#include "core/store/scopes.h"
#include "core/store/waiters.h"

namespace muster {

struct StoreMachineOptions {
  uint64_t reply_bytes_max =
      kReplyBytesMax;  ///< Largest value APPEND may grow, largest multi-value reply.
  uint64_t waited_keys_max = kWaitedKeysMax;  ///< Keys named by all parked waits together.
  Duration reservation_max = 1s;      ///< How long a queue element is kept for a released client.
  bool empty_counts_as_zero = false;  ///< ADD on an empty value: HashStore says 0, TCPStore closes.
  /// CHECK finds this key, and nothing else does: how a server is asked for what it can do besides.
  std::string_view reserved_key{};
  /// How long keys of a scope that nobody has opened are kept.
  Duration stray_scope_kept = 60s;
  /// Of the hashes of keys: a secret of the process, where strangers choose the keys.
  SipKey hash_secret{};
};

/// What the machine holds, as counts; for metrics and tests.
struct StoreMachineStats {
  size_t keys = 0;
  size_t queues = 0;
  size_t parked_clients = 0;
  size_t waited_keys = 0;
  size_t scopes = 0;
  bool operator==(const StoreMachineStats&) const = default;
};

class StoreMachine {
 public:
  explicit StoreMachine(const StoreMachineOptions& options = {});

  /// Executes one request for `client`. Clients whose wait it ended are appended to `released`
  /// (`client` itself, too, if it was parked and made its own key). Views in the reply are valid
  /// until the next call.
  Reply Step(ClientId client, const Request& request, Instant now, Released& released);

  /// The client is gone: its wait and its reservation are forgotten, which may release others.
  void Drop(ClientId client, Instant now, Released& released);

  /// Ends reservations that have lasted too long, and deletes keys of scopes that nobody has opened
  /// in time. Cheap when there are none; call it every second or so. True: there is more to do, it
  /// was enough for one step.
  bool Expire(Instant now, Released& released);

  /// A live run uses the scope (core/store/scopes.h): its keys stay until it is dropped.
  void OpenScope(std::string_view scope) { scopes_.Open(scope); }

  /// Deletes at most so many keys and queues of the scope; true: more are left. When none are, the
  /// scope is forgotten. Who waits for a deleted key goes on waiting.
  bool DropScope(std::string_view scope, size_t keys_max);

  /// Whether the client waits in WAIT or BARRIER.
  bool IsParked(ClientId client) const;

  /// Until told otherwise: what one reply may have, where memory for replies is short.
  void LimitReplies(uint64_t bytes) { reply_limit_ = bytes; }

  StoreMachineStats Stats() const;

 private:
  struct Entry : KeyNode<Entry>, Scopes::Member {
    Entry(const HashedKey& name, std::string_view stored)
        : KeyNode(name), Member(Kind::kEntry), value(stored) {}

    std::string value;
  };

  Reply Set(const Request& request, Released& released);
  Reply CompareSet(const Request& request, Released& released);
  Reply DeleteKey(const Request& request);
  Reply Get(const Request& request) const;
  Reply Add(const Request& request, Released& released);
  Reply Check(const Request& request) const;
  Reply Wait(ClientId client, const Request& request, Instant now);
  Reply Cancel(ClientId client);
  Reply Append(const Request& request, Released& released);
  Reply MultiGet(const Request& request);
  Reply MultiSet(const Request& request, Released& released);
  Reply QueuePush(const Request& request, Instant now, Released& released);
  Reply QueuePop(ClientId client, const Request& request, Instant now, Released& released);
  Reply ListKeys();
  Reply Barrier(ClientId client, const Request& request, Released& released);

  /// Creates or overwrites, waking waiters if the key is new.
  void Store(const HashedKey& key, std::string_view value, Released& released);
  void Create(const HashedKey& key, std::string_view value, Released& released);
  void Erase(Entry& entry);
  void EraseMember(Scopes::Member& member);
  HashedKey KeyOf(const Request& request) const;
  HashedKey KeyAt(const Request& request, size_t index) const;
  /// The stored counter; 0 where there is none (null). Otherwise why the value cannot be counted.
  Reply ReadCounter(const Entry* entry) const;
  void StoreCounter(Entry* entry, const HashedKey& key, int64_t value, Released& released);
  /// Gives free elements of a queue to those parked on it, oldest first.
  void OfferElements(const HashedKey& key, Instant now, Released& released);
  void LeaveBarrier(ClientId client);

  const StoreMachineOptions options_;
  uint64_t reply_limit_ = options_.reply_bytes_max;
  const KeyHasher hasher_;
  Instant now_{};  // of the step under way
  Scopes scopes_;  // outlives its members
  KeyTable<Entry> entries_;
  Queues queues_;
  Waiters waiters_;
  // Barrier participants are kept apart from waiters: a SET on the key must not let them through
  // early.
  using Arrivals = std::list<ClientId>;  // oldest first; anyone may leave in any order
  struct BarrierLine : KeyNode<BarrierLine> {
    using KeyNode::KeyNode;
    Arrivals arrivals;
  };
  struct BarrierPlace {
    BarrierLine* line;
    Arrivals::iterator arrival;
  };
  KeyTable<BarrierLine> barriers_;
  std::unordered_map<ClientId, BarrierPlace> at_barrier_;
  // Memory behind the views of the latest reply.
  std::string reply_value_;
  std::vector<std::string_view> reply_values_;
};

}  // namespace muster
