// Byte streams between peers, for event loops. TCP in production, memory in simulation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "os/ports/loop.h"

namespace muster {

/// A stream's events, on the loop's thread. Each of these may destroy the stream.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;

  /// Bytes came. The view is valid during the call only.
  virtual void OnBytes(std::string_view bytes) = 0;

  /// Everything that Write() had queued has been handed to the network.
  virtual void OnDrained() = 0;

  /// The peer closed, or the connection failed. Nothing follows. "" means an orderly end.
  virtual void OnClosed(const std::string& why) = 0;
};

/// The owner of connections, for fair shares of descriptors: an IPv4 address (mapped into IPv6), or
/// the network part of an IPv6 one.
using PeerGroup = std::array<uint8_t, 16>;

/// How a connection has been used: unused ones are closed first when descriptors run out.
struct StreamUse {
  PeerGroup from{};
  uint64_t received_bytes = 0;
  Instant received_at{};  ///< When the last of them came.
};

/// One connection. Lives on its loop's thread; destroying it closes it, silently.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Starts reading. The handler outlives the stream.
  virtual void Start(StreamHandler& handler) = 0;

  /// Sends `bytes` after those written before; what the network does not take now is copied and
  /// queued. A failure is reported through OnClosed, later.
  virtual void Write(std::string_view bytes) = 0;
  /// The same, but a large buffer is not copied: if the network does not take all of it now, it is
  /// taken over. Empty afterwards.
  virtual void WriteLarge(std::string& bytes) = 0;

  /// Size of the buffers of bytes that the network has not taken. A few KiB may be on their way
  /// there.
  virtual size_t queued_bytes() const = 0;
  /// Bytes that the network has taken since the start: grows as long as the peer reads.
  virtual uint64_t taken_bytes() const = 0;

  /// Stops and resumes OnBytes. A stream that is not read pushes back on its peer.
  virtual void PauseReading() = 0;
  virtual void ResumeReading() = 0;

  virtual StreamUse use() const { return {}; }

  /// The other side, "127.0.0.1:4711".
  virtual std::string peer() const = 0;
  /// This side, as the peer addresses it.
  virtual std::string local() const = 0;
};

using StreamPtr = std::unique_ptr<Stream>;

/// Accepts connections. Lives on the loop that it was made for.
class Listener {
 public:
  virtual ~Listener() = default;

  /// `accept` is called once for each new connection, on the listener's loop. The callee chooses
  /// the loop that will serve it and calls `open(loop)` there; a connection that is never opened is
  /// closed.
  using OpenSocket = std::function<StreamPtr(Loop& loop)>;
  /// Descriptors are short: `count` connections of this peer, or fewer, should be closed soon,
  /// least used ones first; only unused ones, if `only_unused`.
  using MakeRoom = std::function<void(const PeerGroup& from, size_t count, bool only_unused)>;
  virtual void Start(std::function<void(OpenSocket open)> accept, MakeRoom make_room) = 0;

  virtual uint16_t port() const = 0;
};

struct ConnectOptions {
  Duration patience = 5s;  ///< For one attempt as a whole.
  /// Sent bytes that the peer's machine does not acknowledge for so long end the connection; 0: the
  /// default of the system.
  Duration unanswered_max{};
};

/// Connects to peers, on one loop.
class Connector {
 public:
  /// Under way as long as it lives.
  class Attempt {
   public:
    virtual ~Attempt() = default;
  };

  virtual ~Connector() = default;

  /// Tries every address of `to` once, IPv6 first. `done` is called once, later, on the loop:
  /// kUnavailable (no answer, or no such name) or kTimeout.
  virtual std::unique_ptr<Attempt> Connect(const Endpoint& to, const ConnectOptions& options,
                                           std::function<void(Result<StreamPtr>)> done) = 0;
};

}  // namespace muster
