// A listening TCP socket on a libuv loop, behind the Listener port.
//
// Connections are accepted here and handed out as bare descriptors, so that one listener can feed
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
