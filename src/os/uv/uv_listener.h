// A listening TCP socket on a libuv loop, behind the Listener port.
//
// Connections are accepted here and handed out as bare descriptors, so that one listener can feed
// several loops evenly. (A libuv handle cannot move between loops, and with SO_REUSEPORT a second
// server could take the same port unnoticed.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "os/ports/transport.h"
#include "os/uv/uv_loop.h"

namespace muster {

/// A bound and listening descriptor; closes it unless released.
class ListeningSocket {
 public:
  /// `host` "": all interfaces, IPv6 and IPv4 on one socket, falling back to IPv4 alone. Port 0:
  /// the kernel chooses. kConflict: the port is taken. kUnavailable, kInvalid: see the message.
  static Result<ListeningSocket> Bind(const std::string& host, uint16_t port);

  /// Takes over a bound socket (listening or not). `port`, unless 0, must be the one it is bound
  /// to: kInvalid.
  static Result<ListeningSocket> Adopt(int fd, uint16_t port);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  uint16_t port() const { return port_; }
  /// "127.0.0.1:4711" as bound.
  const std::string& address() const { return address_; }
  int Release();

 private:
  ListeningSocket(int fd, uint16_t port, std::string address)
      : fd_(fd), port_(port), address_(std::move(address)) {}

  static Result<ListeningSocket> Listen(int fd);

  int fd_;
  uint16_t port_;
  std::string address_;
};

/// What the first bytes of a connection show.
enum class Opening { kIncomplete, kSession, kRequest, kOther };
using JudgeOpening = std::function<Opening(std::string_view bytes)>;

/// Keeps some descriptors in reserve. When all others are used up, a new peer gets one of the
/// reserve if another address holds more connections than all the rest (some of which are closed),
/// if it opens a session, or if it sends a request and the largest address has unused connections
/// (which are closed). All other peers are refused.
class UvListener final : public Listener {
 public:
  /// Loop thread, as everything here.
  /// `reserve`: how many descriptors; 0: a sixteenth of all, at most 64.
  UvListener(UvLoop& loop, ListeningSocket socket, JudgeOpening judge, LogSink log,
             size_t reserve = 0);
  ~UvListener() override;

  void Start(std::function<void(OpenSocket open)> accept, MakeRoom make_room) override;
  uint16_t port() const override { return port_; }

 private:
  struct Poll;  // libuv's handle and its data; lives until the handle is closed

  const uint16_t port_;
  Poll* poll_;
};

}  // namespace muster
