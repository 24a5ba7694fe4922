#include "os/uv/uv_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/assert.h"
#include "os/posix/address.h"
#include "os/posix/owned_fd.h"

namespace muster {

// libuv only reports when the socket is ready. recv() and send() are shorter paths in the kernel
// than the read() and write() of libuv's own streams, and a reply needs no allocation.
struct UvStream::Socket final : UvOutbox::Sender {
  Socket(UvLoop& owner, int descriptor) : loop(owner), fd(descriptor) {}

  UvLoop& loop;
  const int fd;
  uv_poll_t poll{};
  StreamHandler* handler = nullptr;  // null before Start and after the stream has been destroyed
  bool reading = false;
  int watched = 0;      // the events that libuv polls for
  std::string waiting;  // unsent bytes, with sent ones before `skip`
  size_t skip = 0;      // number of sent bytes at the beginning of `waiting`
  uint64_t taken = 0;
  uint64_t received = 0;
  Instant received_at{};
  int failure = 0;  // error of a send; the handler gets it from the loop, never inside Write()

  size_t queued() const { return waiting.size() - skip; }
  /// The size of the buffer of unsent bytes, including the bytes already sent from it.
  size_t held() const { return queued() == 0 ? 0 : waiting.capacity(); }

  void Watch() {
    const int wanted = (reading ? UV_READABLE : 0) | (queued() > 0 ? UV_WRITABLE : 0);
    if (wanted == watched || handler == nullptr) return;
    watched = wanted;
    if (wanted == 0) {
      uv_poll_stop(&poll);
      return;
    }
    uv_poll_start(&poll, wanted, [](uv_poll_t* ready, int status, int events) {
      static_cast<Socket*>(ready->data)->OnReady(status, events);
    });
  }

  // The handler may destroy the stream in any call; the socket lives until its handle is closed.
  void OnReady(int status, int events) {
    if (status < 0) return Lose();
    if ((events & UV_WRITABLE) != 0) Drain();
    if ((events & UV_READABLE) != 0 && handler != nullptr && reading) Read();
  }

  // Reads once; more bytes are read in the next turn, after the other sockets.
  bool Read() {
    const uv_buf_t buffer = loop.read_buffer();
    const ssize_t count = recv(fd, buffer.base, buffer.len, MSG_DONTWAIT);
    if (count > 0) {
      received += static_cast<uint64_t>(count);
      received_at = loop.Now();
      handler->OnBytes({buffer.base, static_cast<size_t>(count)});
      return true;
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    Closed(count == 0 ? "" : uv_strerror(-errno));
    return false;
  }

  // The last call of the handler.
  void Closed(const char* why) {
    uv_poll_stop(&poll);
    std::exchange(handler, nullptr)->OnClosed(why);
  }

  // The connection was reset. Bytes that arrived earlier can still be read.
  void Lose() {
    while (handler != nullptr && reading && Read()) {
    }
    if (handler != nullptr) Closed(uv_strerror(failure != 0 ? failure : UV_ECONNRESET));
  }

  void Drain() {
    skip += SendNow(std::string_view(waiting).substr(skip));
    if (failure != 0) return Closed(uv_strerror(failure));
    if (queued() > 0) return Trim();
    std::string().swap(waiting);
    skip = 0;
    Watch();
    handler->OnDrained();
  }

  /// Frees sent and reserved bytes once they are more than the unsent ones: a client that reads the
  /// end of a large reply slowly must not hold the whole reply.
  void Trim() {
    if (waiting.capacity() / 2 <= queued()) return;
    waiting = std::string(waiting, skip);
    skip = 0;
  }

  size_t SendNow(std::string_view bytes) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) Fail(-errno);
    if (sent <= 0) return 0;
    taken += static_cast<uint64_t>(sent);
    return static_cast<size_t>(sent);
  }

  void Send(std::string_view bytes) override {
    if (failure != 0) return;
    if (queued() == 0) bytes.remove_prefix(SendNow(bytes));
    if (bytes.empty() || failure != 0) return;
    // Sent bytes are dropped before more come: the buffer of a peer that is always a little behind
    // is never empty.
    if (skip >= waiting.size() / 2) {
      waiting.erase(0, skip);
      skip = 0;
    }
    waiting += bytes;
    Watch();
  }

  void Fail(int status) {
    if (failure != 0) return;
    failure = status;
    // After a failed send, reading usually fails, too; the shutdown makes sure.
    shutdown(fd, SHUT_RDWR);
  }
};

StreamPtr UvStream::Open(UvLoop& loop, int fd, PeerHold hold) {
  MUSTER_ASSERT(loop.IsCurrent());
  OwnedFd owned(fd);
  auto socket = std::make_unique<Socket>(loop, fd);
  if (uv_poll_init(loop.raw(), &socket->poll, fd) != 0) return nullptr;
  owned.Release();
  socket->poll.data = socket.get();
  socket->received_at = loop.Now();
  return StreamPtr(new UvStream(socket.release(), std::move(hold)));
}

UvStream::~UvStream() {
  Socket& socket = *socket_;
  if (socket.loop.outbox().Holds(socket)) socket.loop.outbox().Flush();
  socket.handler = nullptr;
  // Freed now and not with the handle, which lives until the end of the turn: a hundred connections
  // may end in one turn.
  std::string().swap(socket.waiting);
  socket.skip = 0;
  CloseAndDelete(&socket, &Socket::poll);
  close(socket.fd);
}

void UvStream::Start(StreamHandler& handler) {
  socket_->handler = &handler;
  ResumeReading();
}

void UvStream::Write(std::string_view bytes) {
  UvOutbox& outbox = socket_->loop.outbox();
  // Bytes that cannot be sent now are queued and counted immediately.
  const bool can_wait = socket_->queued() == 0 && bytes.size() <= UvOutbox::kLetterBytesMax;
  if (can_wait) return outbox.Add(*socket_, bytes);
  if (outbox.Holds(*socket_)) outbox.Flush();
  socket_->Send(bytes);
}

void UvStream::WriteLarge(std::string& bytes) {
  Socket& socket = *socket_;
  UvOutbox& outbox = socket.loop.outbox();
  if (outbox.Holds(socket)) outbox.Flush();
  const bool direct = socket.queued() == 0 && socket.failure == 0;
  const size_t sent = direct ? socket.SendNow(bytes) : 0;
  if (!direct) {
    socket.Send(bytes);
  } else if (sent < bytes.size() && socket.failure == 0) {
    socket.waiting = std::move(bytes);
    socket.skip = sent;
    socket.Trim();
    socket.Watch();
  }
  bytes.clear();
}

StreamUse UvStream::use() const {
  return {.from = hold_.from(),
          .received_bytes = socket_->received,
          .received_at = socket_->received_at};
}
size_t UvStream::queued_bytes() const { return socket_->held(); }
uint64_t UvStream::taken_bytes() const { return socket_->taken; }

void UvStream::PauseReading() {
  socket_->reading = false;
  socket_->Watch();
}

void UvStream::ResumeReading() {
  socket_->reading = true;
  socket_->Watch();
}

namespace {
std::string NameOf(const std::optional<sockaddr_storage>& address) {
  return address ? ToString(*address) : "a peer that is gone";
}
}  // namespace

std::string UvStream::peer() const { return NameOf(PeerAddress(socket_->fd)); }
std::string UvStream::local() const { return NameOf(LocalAddress(socket_->fd)); }

}  // namespace muster
