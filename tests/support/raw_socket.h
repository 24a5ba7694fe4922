// A TCP connection under the test's control: every byte is visible, every call has a deadline.
//
// Failures throw: in a test body that is a failed test with the message, and helpers need no error
// handling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "support/eventually.h"

namespace muster::test {

class RawSocket {
 public:
  /// Takes ownership of the descriptor. Small writes leave at once (TCP_NODELAY).
  explicit RawSocket(int fd);
  RawSocket(RawSocket&& other) noexcept;
  RawSocket& operator=(RawSocket&& other) noexcept;
  ~RawSocket();

  /// Sends all of `bytes`.
  void Send(std::string_view bytes);
  /// Sends as much as the kernel takes now; returns how much.
  size_t SendWhatFits(std::string_view bytes);

  /// Exactly `count` bytes.
  std::string Receive(size_t count, milliseconds patience = kPatience);
  /// What the first read gives, at least one byte.
  std::string ReceiveSome(milliseconds patience = kPatience);
  /// Everything until the peer closes (or resets) the connection.
  std::string ReceiveUntilClosed(milliseconds patience = kPatience);
  /// Whether the peer has closed it; discards what came before.
  bool IsClosedByPeer();

  /// Data segments that have arrived: with TCP_NODELAY at the peer, about as many as its writes.
  uint32_t SegmentsReceived() const;

  void Close();
  /// Closes with a reset, as a process does that is killed with unread data.
  void CloseAbruptly();
  /// No more bytes from here; the peer reads an end.
  void CloseSending();

  /// The kernel's buffers in either direction; the smaller, the sooner a peer notices that we do
  /// not read.
  void LimitBuffers(int bytes);

 private:
  /// Waits until poll() reports one of `events`; false when the patience ends.
  bool Await(short events, Clock::time_point give_up) const;
  /// One read: the bytes, "" at an orderly or abrupt end.
  std::string ReadOnce(size_t count_max, Clock::time_point give_up);

  int fd_ = -1;
};

/// A loopback listener for scripts: the test plays the server.
class RawListener {
 public:
  RawListener();
  ~RawListener();
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;

  uint16_t port() const { return port_; }
  RawSocket Accept(milliseconds patience = kPatience);
  /// Whether a connection has come that was not accepted yet; waits so long for it.
  bool HasWaiting(milliseconds patience) const;

 private:
  int fd_;
  uint16_t port_ = 0;
};

/// A TCP socket bound to a free loopback port (IPv4) that does not listen: connections are refused,
/// and no other process can take the port. The caller owns the descriptor.
struct BoundSocket {
  int fd;
  uint16_t port;
};
BoundSocket BindLoopback();

enum class Family { kIpv4, kIpv6 };
/// Whether this machine has an IPv6 loopback address.
bool HasIpv6();

}  // namespace muster::test
