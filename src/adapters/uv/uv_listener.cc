#include "adapters/uv/uv_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "adapters/posix/address.h"
#include "adapters/posix/pacing.h"
#include "adapters/uv/uv_stream.h"
#include "base/assert.h"
#include "base/text.h"

namespace muster {

namespace {

Error SystemError(std::string_view what) {
  const int number = errno;
  return Error{number == EADDRINUSE ? Code::kConflict : Code::kUnavailable,
               Concat(what, ": ", std::string_view(std::strerror(number)))};
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value,
             sizeof value);  // best effort: none of them is needed to serve
}

Result<int> BindOne(const sockaddr_storage& address) {
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError(Concat("socket for ", ToString(address)));
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ss_family == AF_INET6) SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    Error error = SystemError(Concat("bind to ", ToString(address)));
    close(fd);
    return error;
  }
  return fd;
}

// Closes its descriptor unless released: the function that holds it may be destroyed unrun when its
// loop ends.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd) : fd_(fd) {}
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  ~OwnedDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::vector<sockaddr_storage> AnyAddresses(uint16_t port) {
  std::vector<sockaddr_storage> any(2);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(any[0]);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  auto& v4 = reinterpret_cast<sockaddr_in&>(any[1]);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  return any;
}

}  // namespace

Result<ListeningSocket> ListeningSocket::Bind(const std::string& host, uint16_t port) {
  std::vector<sockaddr_storage> addresses = AnyAddresses(port);
  if (!host.empty()) {
    // No deadline: a server that cannot resolve the address it was told to listen on has nothing
    // else to do.
    MUSTER_TRY(addresses, Resolve({host, port}, Instant{}, Instant::Never()));
  }
  Error failure{Code::kUnavailable, "no address"};
  for (const sockaddr_storage& address : addresses) {
    Result<int> fd = BindOne(address);
    if (fd) return Listen(*fd);
    // A port that is taken says more than a missing address family: keep that one.
    if (failure.code != Code::kConflict) failure = std::move(fd).error();
  }
  return failure;
}

Result<ListeningSocket> ListeningSocket::Adopt(int fd, uint16_t port) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return Error{Code::kInvalid, Concat("descriptor ", fd, " is not open")};
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  MUSTER_TRY(ListeningSocket socket, Listen(fd));
  if (port != 0 && socket.port() != port) {
    return Error{Code::kInvalid, Concat("the socket handed in is bound to port ", socket.port(),
                                        ", but port ", port, " was asked for")};
  }
  return socket;
}

Result<ListeningSocket> ListeningSocket::Listen(int fd) {
  ListeningSocket socket(fd, 0, "");  // owns fd from here on
  // Accepted connections inherit these from the listener, which saves system calls for each.
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // A machine that vanished is noticed after 60 s + 3 x 20 s, so that its descriptor comes back.
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 20);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  AvoidPacing(fd);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return SystemError("getsockname");
  if (bound.ss_family != AF_INET && bound.ss_family != AF_INET6) {
    return Error{Code::kInvalid, Concat("descriptor ", fd, " is not a TCP socket")};
  }
  // -1: as deep as the kernel allows (somaxconn); thousands of nodes connect in the same instant.
  if (listen(fd, -1) != 0) return SystemError(Concat("listen on ", ToString(bound)));
  socket.port_ = PortOf(bound);
  socket.address_ = ToString(bound);
  return socket;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_), address_(std::move(other.address_)) {}

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) close(fd_);
}

int ListeningSocket::Release() { return std::exchange(fd_, -1); }

struct UvListener::Poll {
  uv_poll_t handle{};
  int fd = -1;
  int spare = -1;  // given up for a moment when descriptors run out, to turn the next peer away
  LogSink log;
  uint64_t last_complaint = 0;
  UvLoop* loop = nullptr;
  std::unique_ptr<Timer> rest;  // while it runs, nobody is accepted
  std::function<void(OpenSocket)> accept;

  ~Poll() {
    close(fd);
    if (spare >= 0) close(spare);
  }

  void AcceptAll() {
    while (true) {
      const int peer = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (peer >= 0) {
        Hand(peer);
      } else if (errno == EMFILE || errno == ENFILE) {
        if (!TurnOneAway()) return Rest();
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;  // EAGAIN, or something that the next readiness will show again
      }
    }
  }

  // Not even one descriptor to spare. Looking again at once would keep the loop busy for nothing.
  void Rest() {
    uv_poll_stop(&handle);
    rest = loop->Every(100ms, [this] {
      rest.reset();
      Listen();
    });
  }

  void Listen() {
    uv_poll_start(&handle, UV_READABLE,
                  [](uv_poll_t* poll, int, int) { static_cast<Poll*>(poll->data)->AcceptAll(); });
  }

  void Hand(int peer) {
    auto owned = std::make_shared<OwnedDescriptor>(peer);
    accept([owned](Loop& chosen) {
      return UvStream::Open(static_cast<UvLoop&>(chosen), owned->Release());
    });
  }

  // A peer that stayed in the backlog would keep the socket readable and this loop busy for
  // nothing; one that is closed at once can try again later. Those already connected notice
  // nothing.
  bool TurnOneAway() {
    const uint64_t now = uv_hrtime();
    if (log && (last_complaint == 0 || now - last_complaint > 1'000'000'000)) {
      last_complaint = now;
      log(LogLevel::kError,
          "out of file descriptors: new connections are turned away; raise 'ulimit -n'");
    }
    if (spare < 0) spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (spare < 0) return false;
    close(spare);
    const int peer = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer >= 0) close(peer);
    spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return peer >= 0;
  }
};

UvListener::UvListener(UvLoop& loop, ListeningSocket socket, LogSink log)
    : port_(socket.port()), poll_(new Poll) {
  MUSTER_ASSERT(loop.IsCurrent());
  poll_->fd = socket.Release();
  poll_->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  poll_->log = std::move(log);
  poll_->handle.data = poll_;
  poll_->loop = &loop;
  MUSTER_ASSERT(uv_poll_init(loop.raw(), &poll_->handle, poll_->fd) == 0);
}

UvListener::~UvListener() {
  poll_->rest.reset();
  uv_close(reinterpret_cast<uv_handle_t*>(&poll_->handle),
           [](uv_handle_t* handle) { delete static_cast<Poll*>(handle->data); });
}

void UvListener::Start(std::function<void(OpenSocket open)> accept) {
  poll_->accept = std::move(accept);
  poll_->Listen();
}

}  // namespace muster
