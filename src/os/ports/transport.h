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

  /// Bytes arrived. The view is valid only during the call.
  virtual void OnBytes(std::string_view bytes) = 0;

  /// The network has taken everything that Write() had queued.
  virtual void OnDrained() = 0;

  /// The peer closed the connection, or it failed. This is the last call. "" means an orderly end.
  virtual void OnClosed(const std::string& why) = 0;
};

/// The owner of connections, for fair shares of descriptors: an IPv4 address (mapped into IPv6), or
/// the network part of an IPv6 one.
using PeerGroup = std::array<uint8_t, 16>;

/// How a connection has been used: unused ones are closed first when descriptors run out.
struct StreamUse {
  PeerGroup from{};
  uint64_t received_bytes = 0;
  Instant received_at{};  ///< When the last of them arrived.
};

/// One connection. Lives on its loop's thread; destroying it closes it, silently.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Starts reading. The handler outlives the stream.
  virtual void Start(StreamHandler& handler) = 0;

  /// Sends `bytes` after those written earlier; bytes that the network does not take now are copied
  /// and queued. A failure is reported later, through OnClosed.
  virtual void Write(std::string_view bytes) = 0;
  /// The same, but a large buffer is not copied: if the network does not take all of it now, the
  /// stream takes over the buffer. `bytes` is empty afterwards.
  virtual void WriteLarge(std::string& bytes) = 0;

  /// Size of the buffers of unsent bytes. A few KiB may be missing from it, which are about to be
  /// queued.
  virtual size_t queued_bytes() const = 0;
  /// Bytes that the network has taken since the start: grows as long as the peer reads.
  virtual uint64_t taken_bytes() const = 0;

  /// Stops and resumes OnBytes. While a stream is not read, its peer is slowed down.
  virtual void PauseReading() = 0;
  virtual void ResumeReading() = 0;

  virtual StreamUse use() const { return {}; }

  /// The other side, "127.0.0.1:4711".
  virtual std::string peer() const = 0;
  /// This side, as the peer addresses it.
  virtual std::string local() const = 0;
};

using StreamPtr = std::unique_ptr<Stream>;

struct ConnectOptions {
  Duration patience = 5s;  ///< For the whole attempt.
  /// The connection ends if the peer's machine does not acknowledge sent bytes for this long; 0:
  /// the default of the system.
  Duration unanswered_max{};
};

/// Connects to peers, on one loop.
class Connector {
 public:
  /// The attempt lasts as long as this object lives.
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
