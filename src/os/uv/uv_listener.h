// A listening TCP socket on a libuv loop, behind the Listener port.
//
// Connections are accepted here and passed on as bare descriptors, so that one listener can serve
// several loops evenly. (A libuv handle cannot move between loops, and with SO_REUSEPORT a second
// server could take the same port unnoticed.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/log.h"
#include "os/ports/transport.h"
#include "os/posix/tcp_socket.h"
#include "os/uv/uv_loop.h"

namespace muster {

/// What the first bytes of a connection begin.
enum class Opening { kIncomplete, kSession, kRequest, kOther };
using JudgeOpening = std::function<Opening(std::string_view bytes)>;

/// Keeps some descriptors in reserve. When all others are in use, a new peer gets one of the
/// reserve in three cases: another address holds more connections than all the rest (some of its
/// connections are closed), the peer opens a session, or it sends a request and the address with
/// the most connections has unused ones (which are closed). All other peers are refused.
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
