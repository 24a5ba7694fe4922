// A network that fails on demand: a TCP proxy on loopback whose connections can be cut.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

namespace muster::test {

class Proxy {
 public:
  /// Forwards to 127.0.0.1:`target`.
  explicit Proxy(uint16_t target);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  uint16_t port() const { return port_; }
  /// Ends every connection. New ones are accepted, unless blocked.
  void Cut();
  /// From now on (or no longer), new connections are accepted and closed at once.
  void Block(bool blocked) { blocked_ = blocked; }
  /// Connections forwarded so far.
  int connections() const { return connections_; }

 private:
  struct Pair {
    int near;
    int far;
    std::thread pump;
  };

  void Accept();
  static void Pump(int near, int far);

  const uint16_t target_;
  int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> blocked_ = false;
  std::atomic<bool> ends_ = false;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;
  std::list<Pair> pairs_;  // guarded by mutex_
  std::thread acceptor_;
};

}  // namespace muster::test
