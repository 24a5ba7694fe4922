// Clients parked in WAIT, kept per key, oldest first: a write touches only clients that it can
// wake, at any world size. Pure; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory_account.h"
#include "store/core/key_table.h"
#include "store/core/request.h"

namespace muster {

class Waiters {
 public:
  explicit Waiters(MemoryAccount& account) : account_(account), lines_(account) {}

  bool Contains(ClientId client) const { return waiters_.contains(client); }

  /// Keys that all parked waits together still miss.
  size_t waited_keys() const { return waited_keys_; }
  size_t clients() const { return waiters_.size(); }
  /// Places in all lines, and in the line of `key`: what Created() or Offer() may have to clear.
  size_t places() const { return places_; }
  size_t PlacesAt(const HashedKey& key) const;
  /// How many places Created() and Offer() have cleared so far.
  uint64_t cleared() const { return cleared_; }

  /// The most memory that a place in the line of `key` can take.
  static size_t BytesFor(const HashedKey& key);

  /// Parks `client` until all keys of `missing` have been created. The client must not be parked
  /// already and `missing` must not be empty. A key that is named twice counts once.
  void Park(ClientId client, std::span<const HashedKey> missing);

  /// Park() in pieces. No client is released before End(), which returns true if no key is missing
  /// any more.
  void Begin(ClientId client);
  void Add(ClientId client, std::span<const HashedKey> missing);
  bool End(ClientId client);

  /// `key` was created. It is satisfied for all its waiters; those without another missing key are
  /// added to `released`.
  void Created(const HashedKey& key, Released& released);

  /// One element of a queue became free. Walks the waiters of `key`, oldest first. For a waiter
  /// with other missing keys, this key is satisfied from now on. The first waiter without other
  /// missing keys ends the walk: it gets the element and is added to `released`. Returns whether
  /// there was one.
  bool Offer(const HashedKey& key, Released& released);

  /// Drops the client's wait; false if it had none. Places in lines beyond the first 64 are left
  /// for Tidy().
  bool Remove(ClientId client);

  /// Clears at most `places_max` places that Remove() has left. True: there are more.
  bool Tidy(size_t places_max);
  bool has_gone() const { return !gone_.empty(); }

 private:
  struct Waiter;
  struct Place {
    Waiter* waiter;
    size_t index;  // index of this key in waiter->stands
  };
  using Places = std::list<Place>;
  struct Line : KeyNode<Line> {
    Line(const HashedKey& name, MemoryAccount& account)
        : KeyNode(name), charge(account, AllocatedBytes(sizeof(Line)) + HeapBytes(key)) {}
    Places places;
    const Charge charge;
  };
  struct Stand {
    Line* line;  // null once the key is satisfied
    Places::iterator place;
  };
  struct Waiter {
    Waiter(ClientId id, MemoryAccount& account) : client(id), charge(account, CostOf(*this)) {}

    const ClientId client;
    size_t missing = 0;
    bool held = true;   // its keys are still being added
    bool gone = false;  // removed; only its places are left
    size_t tidied = 0;  // number of stands that Tidy() has cleared
    std::vector<Stand> stands;
    Charge charge;
  };

  static size_t CostOf(const Waiter& waiter);

  /// Removes one place from its line. True if its waiter misses no other key.
  bool Satisfy(const Place& place);
  ClientId Finish(Waiter& waiter);

  MemoryAccount& account_;
  KeyTable<Line> lines_;
  std::unordered_map<ClientId, std::unique_ptr<Waiter>> waiters_;
  std::deque<std::unique_ptr<Waiter>> gone_;
  size_t waited_keys_ = 0;
  size_t places_ = 0;
  uint64_t cleared_ = 0;
};

}  // namespace muster
