// A listening TCP socket on a libuv loop, which accepts connections.
//
// Connections are accepted here and passed on as bare descriptors, so that one listener can serve
// several loops evenly. (A libuv handle cannot move between loops, and with SO_REUSEPORT a second
// server could take the same port unnoticed.)
#pragma once

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
class UvListener {
 public:
  /// Loop thread, as everything here.
  /// `reserve`: how many descriptors; 0: a sixteenth of all, at most 64.
  UvListener(UvLoop& loop, ListeningSocket socket, JudgeOpening judge, LogSink log,
             size_t reserve = 0);
  ~UvListener();
  UvListener(UvListener&&) = delete;

  /// `accept` is called once for each new connection, on the listener's loop. The callee chooses
  /// the loop that will serve it and calls `open(loop)` there; a connection that is never opened is
  /// closed.
  using OpenSocket = std::function<StreamPtr(UvLoop& loop)>;
  /// Few descriptors are left: up to `count` connections of this peer should be closed soon, the
  /// least used ones first; only unused ones if `only_unused`.
  using MakeRoom = std::function<void(const PeerGroup& from, size_t count, bool only_unused)>;
  void Start(std::function<void(OpenSocket open)> accept, MakeRoom make_room);

 private:
  struct Poll;  // libuv's handle and its data; lives until the handle is closed

  Poll* const poll_;
};

}  // namespace muster
