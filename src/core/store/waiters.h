// Clients parked in WAIT, kept per key, oldest first: a write touches only those it can wake, at
// any world size. Pure; one owner.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/store/client_id.h"
#include "core/store/key_table.h"

namespace muster {

class Waiters {
 public:
  bool Contains(ClientId client) const { return waiters_.contains(client); }

  /// Keys named by all parked waits together (a key named twice counts twice).
  size_t waited_keys() const { return waited_keys_; }
  size_t clients() const { return waiters_.size(); }

  /// Parks `client` until every one of `missing` has been created. The client must not be parked
  /// already and `missing` must not be empty. Duplicates are harmless.
  void Park(ClientId client, std::span<const HashedKey> missing);

  /// `key` came into existence: all who wait for it lose it from their list, and those with nothing
  /// left to wait for go to `released`.
  void Created(const HashedKey& key, Released& released);

  /// One element of a queue became free. Walks the waiters of `key`, oldest first: whoever has
  /// other keys missing just loses this one (a satisfied key stays satisfied); the first who is
  /// thereby done ends the walk, goes to `released` and has the element. Returns whether there was
  /// such a one.
  bool Offer(const HashedKey& key, Released& released);

  /// Forgets the client's wait; false if it had none.
  bool Remove(ClientId client);

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
    ClientId client;
    size_t missing;
    std::vector<Stand> stands;
  };

  /// Takes one place out of its line. True when its waiter has nothing left to wait for.
  bool Satisfy(const Place& place);
  void Finish(Waiter& waiter, Released& released);

  KeyTable<Line> lines_;
  std::unordered_map<ClientId, std::unique_ptr<Waiter>> waiters_;
  size_t waited_keys_ = 0;
};

}  // namespace muster
