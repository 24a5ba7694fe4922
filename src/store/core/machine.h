// The store machine: the key space, its queues, and the clients parked in WAIT and BARRIER.
//
// A step takes a request and the time, and returns the reply and the clients whose wait is over. No
// I/O, no clock, no thread: the driver serialises calls and sends the replies. HashStore and
// StoreServer both drive this one machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/memory_account.h"
#include "base/time.h"
#include "store/core/key_table.h"
#include "store/core/queues.h"
#include "store/core/request.h"
#include "store/core/scopes.h"
#include "store/core/value.h"
#include "store/core/waiters.h"

namespace muster {

struct StoreMachineOptions {
  /// Largest value APPEND may grow, largest multi-value reply.
  uint64_t reply_bytes_max = kReplyBytesMax;
  uint64_t waited_keys_max = kWaitedKeysMax;  ///< Keys named by all parked waits together.
  Duration reservation_max = 1s;  ///< How long a queue element is kept for a released client.
  /// ADD on an empty value: 0 for HashStore, an error for TCPStore.
  bool empty_counts_as_zero = false;
  /// Only CHECK finds this key: clients detect muster's server with it.
  std::string_view reserved_key{};
  /// How long keys of an unopened scope are kept.
  Duration stray_scope_kept = 60s;
  /// For the hashes of keys: a secret of the process if clients choose the keys.
  SipKey hash_secret{};
  /// Counts and bounds the memory of the machine; null: no bound. Outlives the machine.
  MemoryAccount* account = nullptr;
};

/// Counts of what the machine holds, for metrics and tests.
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
  /// A key in the table.
  struct Entry : KeyNode<Entry>, Scopes::Member {
    Entry(const HashedKey& name, Value stored)
        : KeyNode(name), Member(Kind::kEntry), value(std::move(stored)) {}

    Value value;
    uint32_t pins = 0;       // staged sets of this key, which keep it in the table
    bool is_there = false;   // it has a value
    bool owes_wake = false;  // it was created by a set, and its waiters have not been released yet
  };

  explicit StoreMachine(const StoreMachineOptions& options = {});

  /// Executes one request for `client`. Clients whose wait it ended are appended to `released`
  /// (`client` itself, too, if it was parked and made its own key). Views in the reply are valid
  /// until the next call.
  Reply Step(ClientId client, const Request& request, Instant now, Released& released);

  /// The client is disconnected: drops its wait and its reservation, which may release others.
  void Drop(ClientId client, Instant now, Released& released);

  /// Ends reservations that have lasted too long, and deletes keys of scopes that were not opened
  /// in time. Cheap if there are none; call it every second or so. True: call it again for the
  /// rest.
  bool Expire(Instant now, Released& released);
  /// Whether Expire() has something to do, now or later.
  bool HasDeadlines() const {
    return queues_.has_reservations() || scopes_.has_strays() || waiters_.has_gone();
  }

  /// A live run uses the scope (store/core/scopes.h): its keys stay until it is dropped.
  void OpenScope(std::string_view scope) { scopes_.Open(scope); }

  /// Deletes at most `keys_max` keys and queues of the scope; true: more are left. If none are
  /// left, the scope is forgotten. Clients that wait for a deleted key continue to wait.
  bool DropScope(std::string_view scope, size_t keys_max);
  /// Leaves the scope's remaining keys to the following calls of Expire().
  void ExpireScope(std::string_view scope) { scopes_.Close(scope); }

  /// Whether the client waits in WAIT or BARRIER.
  bool IsParked(ClientId client) const {
    return waiters_.Contains(client) || at_barrier_.Contains(client);
  }

  StoreMachineStats Stats() const;

  /// Large values, and whole queues, that steps have removed. The driver takes them from time to
  /// time, to destroy them without holding its lock: the memory of large values is unmapped page by
  /// page.
  struct Garbage {
    std::vector<Value> values;
    std::vector<Queues::Elements> queues;
    size_t bytes = 0;  // about
    bool empty() const { return values.empty() && queues.empty(); }
    /// Destroys about `bytes_max` bytes; true: more are left.
    bool DestroySome(size_t bytes_max);
  };
  Garbage TakeGarbage() { return std::exchange(garbage_, Garbage()); }
  bool has_garbage() const { return !garbage_.empty(); }
  size_t garbage_bytes() const { return garbage_.bytes; }

  // --- A request on many keys in pieces, each a short step (store/core/long_step.h)

  /// The first part of any request but QUEUE_POP.
  void GiveUpReservation(ClientId client, Instant now, Released& released);
  /// Whether all keys exist, as for CHECK.
  bool AreThere(std::span<const HashedKey> keys) const;
  /// As for MULTI_GET: passes the value of each key, empty if it has none.
  void ForEachValue(std::span<const HashedKey> keys, auto take) const {
    for (const HashedKey& key : keys) {
      const Entry* entry = Find(key);
      take(entry == nullptr ? ValueView() : entry->value.view());
    }
  }
  /// The bytes that a MULTI_GET of these keys copies: small values, and the ends of large ones. One
  /// step should copy about kBytesPerPiece at most.
  size_t BytesCopiedFor(const Request& multi_get) const;
  static constexpr size_t kBytesPerPiece = 4 * 1024 * 1024;
  static constexpr size_t kFewKeys = 64;  // whose values are never more than that
  /// Whether a MULTI_SET of these keys wakes so many clients that it is better done in pieces.
  bool WakesMany(const Request& multi_set) const;
  /// Places of waiting clients that one step may clear (each costs up to 100 ns), besides those of
  /// one key; and how many have been cleared so far.
  static constexpr size_t kPlacesPerPiece = 10'000;
  uint64_t places_cleared() const { return waiters_.cleared(); }
  /// As for LIST_KEYS, but for one of kShards: of 10 million keys, each shard has 10,000.
  static constexpr size_t kShards = KeyTable<Entry>::kShards;
  void ForEachKey(size_t shard, auto take) const {
    entries_.VisitShard(shard, [&](const Entry& entry) {
      if (entry.is_there) take(ValueView(entry.key));
    });
  }

  /// As for WAIT: Begin, Add as often as needed, then End, which may return kStopWaiting. After a
  /// refusal the client is still parked, and must be dropped.
  Reply BeginWait(ClientId client);
  Reply AddToWait(ClientId client, std::span<const HashedKey> keys,
                  std::optional<HashedKey>& queue);
  Reply EndWait(ClientId client, const std::optional<HashedKey>& queue, Instant now);

  /// Keys and values of a MULTI_SET that is prepared in pieces, done in one step, and settled in
  /// pieces. Built without the machine. What is prepared must be settled, whether or not the step
  /// was done.
  class StagedSet {
   public:
    ~StagedSet();
    /// Returns the memory that the two have allocated, without the pieces of the value.
    size_t Add(const HashedKey& key, Value value);

   private:
    friend class StoreMachine;
    std::vector<std::unique_ptr<Entry>> made_;  // null once it is in the table
    std::vector<Entry*> places_;                // the entry of each, once it is prepared
    std::vector<Value> values_;
    size_t settled_ = 0;
  };
  /// True: more is to be prepared, or to be settled.
  bool Prepare(StagedSet& set, size_t keys_max, Instant now);
  void Commit(StagedSet& set);
  bool Settle(StagedSet& set, size_t keys_max, Released& released);

 private:
  /// The value of a request that is to be stored.
  struct Given {
    std::string_view bytes;
    const Piece* piece = nullptr;
    bool is_small() const { return bytes.size() <= kSmallValueBytes; }
  };

  Reply Set(const Request& request, Released& released);
  Reply CompareSet(const Request& request, Released& released);
  Reply DeleteKey(const Request& request, Released& released);
  Reply Get(const Request& request) const;
  Reply Add(const Request& request, Released& released);
  Reply Check(const Request& request) const;
  Reply Wait(ClientId client, const Request& request);
  Reply Cancel(ClientId client);
  Reply Append(const Request& request, Released& released);
  Reply MultiGet(const Request& request);
  Reply MultiSet(const Request& request, Released& released);
  Reply QueuePush(const Request& request, Released& released);
  Reply QueuePop(ClientId client, const Request& request, Released& released);
  Reply ListKeys();
  Reply Barrier(ClientId client, const Request& request, Released& released);

  /// What a wait still misses.
  struct Missing {
    std::vector<HashedKey> keys{};
    std::optional<HashedKey> queue{};  // the first key that only a queue satisfies
  };
  void Look(const HashedKey& key, Missing& missing) const;
  /// kRefused if limits forbid it.
  Reply MayWaitFor(const Missing& missing) const;

  /// Null if there is no such key.
  Entry* Find(const HashedKey& key) const {
    Entry* entry = entries_.Find(key);
    return entry != nullptr && entry->is_there ? entry : nullptr;
  }
  /// Overwrites the key's entry; if that is null, creates the key and wakes waiters. False: no
  /// room.
  bool Store(Entry* entry, const HashedKey& key, const Given& given, Released& released);
  bool Create(const HashedKey& key, const Given& given, Released& released);
  bool Overwrite(Entry& entry, const Given& given);
  /// The same without the check for room.
  void Put(const HashedKey& key, Value value, Released& released);
  void Replace(Entry& entry, Value& value);
  Value ValueOf(const Given& given);
  bool HasRoomFor(const Given& given) const {
    return given.piece != nullptr || account_.HasRoomFor(given.bytes.size());
  }
  Entry& Link(std::unique_ptr<Entry> made);
  void MakeThere(Entry& entry);
  /// Releases its waiters, if that has not happened yet.
  void Wake(Entry& entry, Released& released);
  void Erase(Entry& entry);
  void Unpin(Entry& entry);
  void EraseMember(Scopes::Member& member);
  void Discard(Value value);
  static size_t CostOf(const Entry& entry);
  HashedKey KeyOf(const Request& request) const {
    return {request.key, request.hash != 0 ? request.hash : hasher_.Hash(request.key)};
  }
  HashedKey KeyAt(const Request& request, size_t index) const {
    const std::string_view key = request.keys[index];
    return {key, request.hashes.empty() ? hasher_.Hash(key) : request.hashes[index]};
  }
  /// The stored counter; 0 if there is no entry. Otherwise the reason why the value is not a
  /// counter.
  Reply ReadCounter(const Entry* entry) const;
  bool StoreCounter(Entry* entry, const HashedKey& key, int64_t value, Released& released);
  Reply GiveValue(const ValueView& value) const;
  /// Gives free elements of a queue to the clients parked on it, oldest first.
  void OfferElements(const HashedKey& key, Released& released);

  const StoreMachineOptions options_;
  const KeyHasher hasher_;
  MemoryAccount own_account_;
  MemoryAccount& account_;
  Charge charge_;  // for entries
  Garbage garbage_;
  Instant now_{};  // of the current step
  Scopes scopes_;  // outlives its members
  KeyTable<Entry> entries_;
  size_t keys_ = 0;  // entries that have a value
  Queues queues_;
  Waiters waiters_;
  // Barrier participants are stored separately from waiters: a SET on the key must not release them
  // early.
  Waiters at_barrier_;
  // Owns the memory of the views of the latest reply.
  Value reply_value_;
  std::vector<ValueView> reply_values_;
};

}  // namespace muster
