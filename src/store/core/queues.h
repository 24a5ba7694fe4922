// The queues of a store, and the reservations of their elements.
//
// A blocking pop is two requests on the wire, WAIT and then QUEUE_POP. Between the two, another
// client could take the element, and the blocking pop would fail with "queue is empty". So the
// element is reserved for the client whose WAIT it answered, until that client pops, sends another
// request, disconnects, or lets `reservation_max` pass (a client that only looked must not block
// the others). Pure; one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <unordered_map>

#include "base/time.h"
#include "store/core/key_table.h"
#include "store/core/request.h"
#include "store/core/scopes.h"
#include "store/core/value.h"

namespace muster {

class Queues {
 public:
  /// Scopes and account outlive the queues.
  Queues(Duration reservation_max, Scopes& scopes, MemoryAccount& account)
      : reservation_max_(reservation_max), scopes_(scopes), account_(account), queues_(account) {}

  using Elements = std::deque<Value>;

  void Push(const HashedKey& key, Value element, Instant now);

  /// The most memory that a push takes, without the element's pieces.
  static size_t BytesFor(const HashedKey& key, size_t small_bytes);

  /// Elements in the queue, reserved or not; 0 for an unknown one.
  size_t Length(const HashedKey& key) const;

  /// Whether `key` has an element that is not reserved.
  bool HasFree(const HashedKey& key) const;

  /// Reserves one free element of `key` for `client`, which must have no other reservation.
  void Reserve(ClientId client, const HashedKey& key, Instant now);

  /// Whether `client` holds a reservation for `key`.
  bool HasReserved(ClientId client, const HashedKey& key) const;

  /// Cancels the client's reservation; returns the queue whose element is free again.
  std::optional<OwnedKey> Unreserve(ClientId client);

  /// The client with the oldest reservation, if that has expired by `now`.
  std::optional<ClientId> Expired(Instant now) const;

  /// Removes the oldest element that `client` may have: its reserved one or a free one.
  std::optional<Value> Pop(ClientId client, const HashedKey& key);

  /// Deletes a queue and returns its elements. Their reservations have no effect any more.
  Elements Delete(Scopes::Member& queue);

  bool has_reservations() const { return !oldest_first_.empty(); }
  size_t size() const { return queues_.size(); }

 private:
  struct Queue : KeyNode<Queue>, Scopes::Member {
    Queue(const HashedKey& name, uint64_t number, MemoryAccount& account)
        : KeyNode(name), Member(Kind::kQueue), charge(account, EmptyBytes(name)), serial(number) {}

    Elements elements;
    Charge charge;
    size_t reserved = 0;
    const uint64_t serial;  // a queue that is deleted and created again is another one
  };
  struct Reservation {
    Reservation(ClientId by, const HashedKey& key, uint64_t number, Instant end,
                MemoryAccount& account);

    ClientId client;
    OwnedKey name;
    uint64_t serial;
    Instant until;
    const Charge charge;  // includes its entries in the list and in the table of clients
  };
  using Reservations = std::list<Reservation>;

  static size_t EmptyBytes(const HashedKey& key);
  static size_t CostOf(const Value& element) { return sizeof(Value) + element.heap_bytes(); }

  const Duration reservation_max_;
  Scopes& scopes_;
  MemoryAccount& account_;
  uint64_t made_ = 0;
  KeyTable<Queue> queues_;
  Reservations oldest_first_;
  std::unordered_map<ClientId, Reservations::iterator> by_client_;
};

}  // namespace muster
