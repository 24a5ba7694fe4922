// The queues of a store and the elements that are spoken for.
//
// A blocking pop is two requests on the wire, WAIT and then QUEUE_POP. Between the two, somebody
// else could take the element, and the first client's blocking pop would fail with "queue is
// empty". So an element is reserved for the client whose WAIT it answered until that client pops,
// asks for anything else, leaves, or lets `reservation_max` pass (a client that only wanted to look
// must not starve those who work). Pure; one owner.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/time.h"
#include "core/store/client_id.h"

namespace muster {

class Queues {
 public:
  explicit Queues(Duration reservation_max) : reservation_max_(reservation_max) {}

  void Push(std::string_view key, std::string_view element);

  /// Elements in the queue, reserved or not; 0 for an unknown one.
  size_t Length(std::string_view key) const;

  /// Whether `key` has an element that nobody has spoken for.
  bool HasFree(std::string_view key) const;

  /// Keeps one free element of `key` for `client`, which must have no other reservation.
  void Reserve(ClientId client, std::string_view key, Instant now);

  /// The queue for which `client` holds a reservation, if any.
  std::optional<std::string> ReservedBy(ClientId client) const;

  /// Gives the client's reservation up; returns the queue whose element is free again.
  std::optional<std::string> Unreserve(ClientId client);

  /// The client with the oldest reservation that has lasted long enough by `now`.
  std::optional<ClientId> Expired(Instant now) const;

  /// Takes the oldest element that `client` may have: its reserved one or a free one.
  std::optional<std::string> Pop(ClientId client, std::string_view key);

  bool has_reservations() const { return !oldest_first_.empty(); }
  size_t size() const { return queues_.size(); }

 private:
  struct Queue {
    std::deque<std::string> elements;
    size_t reserved = 0;
  };
  struct Reservation {
    ClientId client;
    std::string key;
    Instant until;
  };
  using Reservations = std::list<Reservation>;

  const Duration reservation_max_;
  std::unordered_map<std::string, Queue, KeyHash, std::equal_to<>> queues_;
  Reservations oldest_first_;
  std::unordered_map<ClientId, Reservations::iterator> by_client_;
};

}  // namespace muster
