// One client's connection to the server. It splits and delays bytes, and loses connections, as its
// seed says. It is a TCP proxy on loopback with threads of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "histories/plan.h"
#include "support/raw_socket.h"

namespace muster::test {

class FaultyWire {
 public:
  /// Forwards to 127.0.0.1:`target`.
  FaultyWire(uint16_t target, uint64_t seed, const Faults& faults);
  /// Ends all connections, whatever is still under way.
  ~FaultyWire();
  FaultyWire(const FaultyWire&) = delete;
  FaultyWire& operator=(const FaultyWire&) = delete;

  uint16_t port() const { return port_; }

 private:
  /// One direction of a connection, and its faults.
  struct Way {
    int from;
    int to;
    Prng prng;
    int64_t bytes_left;  ///< Then the connection ends.
  };
  struct Link {
    int near;
    int far;
    std::thread requests;
    std::thread replies;
  };

  void Accept();
  Way MakeWay(int from, int to);
  void Pump(Way way) const;
  bool Forward(Way& way, const char* bytes, size_t count) const;
  /// Returns after that time, or when the wire ends.
  void HoldUp(milliseconds time) const;

  const uint16_t target_;
  const Faults faults_;
  Prng prng_;           // of the accepting thread
  int links_made_ = 0;  // likewise
  int listener_;
  int end_;  // an eventfd: readable when the wire ends
  uint16_t port_ = 0;
  std::list<Link> links_;  // used by the accepting thread, and after its end by the destructor
  std::thread acceptor_;
};

}  // namespace muster::test
