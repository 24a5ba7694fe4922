// Counts the connections of each peer address: the address with the most loses some when
// descriptors run out. Any thread.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "os/ports/transport.h"

namespace muster {

/// An IPv4 address is a group of its own; of an IPv6 address, the network of 64 bits that one
/// machine may choose addresses from.
PeerGroup GroupOf(const sockaddr_storage& address);
/// "10.0.0.7", "2001:db8::/64".
std::string NameOf(const PeerGroup& group);

class PeerShares {
 public:
  struct Largest {
    PeerGroup from{};
    size_t held = 0;
    size_t total = 0;  ///< Of all addresses.
  };

  void Add(const PeerGroup& from) { Count(from, 1); }
  void Remove(const PeerGroup& from) { Count(from, -1); }
  size_t HeldBy(const PeerGroup& from) const;
  /// The address that holds the most connections.
  Largest FindLargest() const;

 private:
  void Count(const PeerGroup& from, int more);

  mutable std::mutex mutex_;
  std::map<PeerGroup, size_t> held_;
  std::set<std::pair<size_t, PeerGroup>> by_count_;
  size_t total_ = 0;
};

/// Counts one connection for as long as it lives.
class PeerHold {
 public:
  PeerHold() = default;
  PeerHold(std::shared_ptr<PeerShares> shares, const PeerGroup& from);
  PeerHold(PeerHold&& other) noexcept = default;
  PeerHold& operator=(PeerHold&&) = delete;
  ~PeerHold();

  const PeerGroup& from() const { return from_; }

 private:
  std::shared_ptr<PeerShares> shares_;  // null: not counted
  PeerGroup from_{};
};

}  // namespace muster
