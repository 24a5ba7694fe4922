// Clients parked in WAIT, kept per key, oldest first: a write touches only those it can wake, at
// any world size. Pure; one owner.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory_account.h"
#include "store/core/client_id.h"
#include "store/core/key_table.h"

namespace muster {

class Waiters {
 public:
  explicit Waiters(MemoryAccount& account) : charge_(account), lines_(account) {}
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;

  bool Contains(ClientId client) const { return waiters_.contains(client); }

  /// Keys that all parked waits together still miss.
  size_t waited_keys() const { return waited_keys_; }
  size_t clients() const { return waiters_.size(); }

  /// What a place in the line of `key` costs at most.
  static size_t BytesFor(const HashedKey& key);

  /// Parks `client` until every one of `missing` has been created. The client must not be parked
  /// already and `missing` must not be empty. A key that is named twice is missed once.
  void Park(ClientId client, std::span<const HashedKey> missing);

  /// The same in pieces. No client is released before End(); true: nothing is missing any more, and
  /// the wait is over.
  void Begin(ClientId client);
  void Add(ClientId client, std::span<const HashedKey> missing);
  bool End(ClientId client);

  /// `key` came into existence: it is satisfied for all that wait for it, and those that miss no
  /// other key go to `released`.
  void Created(const HashedKey& key, Released& released);

  /// One element of a queue became free. Walks the waiters of `key`, oldest first: for a
  /// waiter that misses other keys this one is satisfied from now on; the first one that misses no
  /// other key ends the walk, goes to `released` and has the element. Returns whether there was
  /// one.
  bool Offer(const HashedKey& key, Released& released);

  /// Drops the client's wait; false if it had none. Many places in lines are left for Tidy().
  bool Remove(ClientId client);

  /// Clears up to so many places that were left behind. True: there are more.
  bool Tidy(size_t places_max);
  bool has_gone() const { return !gone_.empty(); }

 private:
  struct Waiter;
  struct Place {
    Waiter* waiter;
    size_t index;  // of this key in waiter->stands
  };
  using Places = std::list<Place>;
  struct Line : KeyNode<Line> {
    using KeyNode::KeyNode;
    Places places;
  };
  struct Stand {
    Line* line;  // null once the key is satisfied
    Places::iterator place;
  };
  struct Waiter {
    explicit Waiter(ClientId id) : client(id) {}

    const ClientId client;
    size_t missing = 0;
    bool held = true;   // its keys are still being added
    bool gone = false;  // only its places are left
    size_t tidied = 0;  // of its stands, once it is gone
    std::vector<Stand> stands;
  };

  static size_t CostOf(const Line& line);
  static size_t CostOf(const Waiter& waiter);

  Line& LineOf(const HashedKey& key);
  void Erase(Line& line);
  void Vacate(const Stand& stand);
  /// Takes one place out of its line. True when its waiter misses no other key.
  bool Satisfy(const Place& place);
  void Finish(Waiter& waiter, Released& released);

  Charge charge_;
  KeyTable<Line> lines_;
  std::unordered_map<ClientId, std::unique_ptr<Waiter>> waiters_;
  std::deque<std::unique_ptr<Waiter>> gone_;
  size_t waited_keys_ = 0;
};

}  // namespace muster
