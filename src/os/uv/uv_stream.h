// A TCP connection on a libuv loop, behind the Stream port.
#pragma once

#include <utility>

#include "os/ports/transport.h"
#include "os/uv/peer_shares.h"
#include "os/uv/uv_loop.h"

namespace muster {

class UvStream final : public Stream {
 public:
  /// Takes over a connected, non-blocking socket. Loop thread. Null if libuv refuses it (the socket
  /// is closed).
  static StreamPtr Open(UvLoop& loop, int fd, PeerHold hold = {});
  ~UvStream() override;

  void Start(StreamHandler& handler) override;
  void Write(std::string_view bytes) override;
  void WriteLarge(std::string& bytes) override;
  size_t queued_bytes() const override;
  uint64_t taken_bytes() const override;
  void PauseReading() override;
  void ResumeReading() override;
  StreamUse use() const override;
  std::string peer() const override;
  std::string local() const override;

 private:
  struct Socket;  // libuv's handle and its data; lives until the handle is closed

  UvStream(Socket* socket, PeerHold hold) : socket_(socket), hold_(std::move(hold)) {}

  Socket* socket_;
  const PeerHold hold_;  // of an accepted connection; released with the descriptor
};

}  // namespace muster
