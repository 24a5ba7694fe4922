#include "adapters/uv/uv_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "adapters/posix/address.h"
#include "base/assert.h"

namespace muster {

struct UvStream::Socket {
  explicit Socket(UvLoop& owner) : loop(owner) {}

  UvLoop& loop;
  int fd = -1;  // libuv's; closed by it
  uv_tcp_t tcp{};
  uv_write_t write{};
  StreamHandler* handler = nullptr;  // null before Start and after the stream has been destroyed
  std::string in_flight;             // libuv is sending this,
  size_t skip = 0;                   // from here on: what is before went out already
  std::string waiting;               // to be sent after it
  uint64_t taken = 0;
  int failure = 0;  // a write failed; told to the handler from the loop, never from inside Write()

  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&tcp); }
  uv_handle_t* handle() { return reinterpret_cast<uv_handle_t*>(&tcp); }

  void Read() {
    uv_read_start(
        stream(),
        [](uv_handle_t* handle, size_t, uv_buf_t* buffer) {
          *buffer = static_cast<Socket*>(handle->data)->loop.read_buffer();
        },
        [](uv_stream_t* from, ssize_t count, const uv_buf_t* buffer) {
          auto* socket = static_cast<Socket*>(from->data);
          if (count > 0) {
            socket->handler->OnBytes({buffer->base, static_cast<size_t>(count)});
          } else if (count < 0) {
            socket->handler->OnClosed(count == UV_EOF ? "" : uv_strerror(static_cast<int>(count)));
          }
          // The handler may have destroyed the stream; the socket lives until its handle is closed.
        });
  }

  // Straight to the kernel, as much as it takes, if nothing is queued before: no request to
  // allocate, no callback to wait for, and send() is a shorter way through it than the write() that
  // libuv would call.
  size_t SendNow(std::string_view bytes) {
    if (failure != 0 || !in_flight.empty() || !waiting.empty()) return 0;
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) FailLater(-errno);
    if (sent <= 0) return 0;
    taken += static_cast<uint64_t>(sent);
    return static_cast<size_t>(sent);
  }

  void Flush() {
    MUSTER_ASSERT(in_flight.empty());
    in_flight.swap(waiting);
    Launch();
  }

  void Launch() {
    const uv_buf_t buffer =
        uv_buf_init(in_flight.data() + skip, static_cast<unsigned>(in_flight.size() - skip));
    write.data = this;
    const int started = uv_write(&write, stream(), &buffer, 1, [](uv_write_t* done, int status) {
      static_cast<Socket*>(done->data)->Written(status);
    });
    if (started != 0) FailLater(started);
  }

  void Written(int status) {
    if (status != 0) return FailNow(status);
    taken += in_flight.size() - skip;
    std::string().swap(in_flight);
    skip = 0;
    if (handler == nullptr) return;
    if (!waiting.empty()) return Flush();
    handler->OnDrained();
  }

  void FailLater(int status) {
    if (failure != 0) return;
    failure = status;
    // A read callback with the same error usually follows; shutting the fd down makes sure that one
    // does.
    ShutdownSocket(fd);
  }

  void FailNow(int status) {
    if (handler != nullptr && status != UV_ECANCELED) handler->OnClosed(uv_strerror(status));
  }
};

StreamPtr UvStream::Open(UvLoop& loop, int fd) {
  MUSTER_ASSERT(loop.IsCurrent());
  auto* socket = new Socket(loop);
  uv_tcp_init(loop.raw(), &socket->tcp);
  socket->tcp.data = socket;
  StreamPtr stream(new UvStream(socket));
  if (uv_tcp_open(&socket->tcp, fd) != 0) {
    close(fd);
    return nullptr;
  }
  socket->fd = fd;
  return stream;
}

UvStream::~UvStream() {
  socket_->handler = nullptr;
  uv_close(socket_->handle(),
           [](uv_handle_t* handle) { delete static_cast<Socket*>(handle->data); });
}

void UvStream::Start(StreamHandler& handler) {
  socket_->handler = &handler;
  socket_->Read();
}

void UvStream::Write(std::string_view bytes) {
  Socket& socket = *socket_;
  bytes.remove_prefix(socket.SendNow(bytes));
  if (bytes.empty() || socket.failure != 0) return;
  socket.waiting += bytes;
  if (socket.in_flight.empty()) socket.Flush();
}

void UvStream::WriteLarge(std::string bytes) {
  Socket& socket = *socket_;
  const size_t sent = socket.SendNow(bytes);
  if (sent == bytes.size() || socket.failure != 0) return;
  if (queued_bytes() > 0) {
    socket.waiting.append(bytes, sent);
    return;
  }
  socket.in_flight = std::move(bytes);
  socket.skip = sent;
  socket.Launch();
}

size_t UvStream::queued_bytes() const {
  return socket_->in_flight.size() - socket_->skip + socket_->waiting.size();
}

uint64_t UvStream::taken_bytes() const {
  // What libuv has written of the buffer in flight, too: a large reply may take long and still
  // move.
  const size_t unsent = uv_stream_get_write_queue_size(socket_->stream());
  const size_t in_flight = socket_->in_flight.size() - socket_->skip;
  return socket_->taken + (in_flight > unsent ? in_flight - unsent : 0);
}

void UvStream::PauseReading() { uv_read_stop(socket_->stream()); }
void UvStream::ResumeReading() { socket_->Read(); }

std::string UvStream::peer() const {
  sockaddr_storage address{};
  int size = sizeof address;
  if (uv_tcp_getpeername(&socket_->tcp, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "a peer that is gone";
  }
  return ToString(address);
}

}  // namespace muster
