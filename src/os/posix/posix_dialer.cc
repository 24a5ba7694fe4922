#include "os/posix/posix_dialer.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/pacing.h"

namespace muster {

namespace {

// However long the caller would wait: no address but the last may take longer than this. One that
// is alive answers within three seconds, even if its first packets are lost.
constexpr Duration kShareMax = 10s;

std::string_view ErrorText(int number) { return std::strerror(number); }

// Waits for `events` on `fd`. kTimeout at the deadline, even if they are there: a peer that keeps
// us busy must not keep us for ever. A signal does not end the wait, unless somebody has asked for
// it: kInterrupted.
Status Await(int fd, short events, Clock& clock, Instant deadline) {
  bool by_signal = false;
  while (true) {
    int wait_ms = -1;
    if (deadline != Instant::Never() || CanBeInterrupted()) {
      const Instant now = clock.Now();
      if (now >= deadline) return Error{Code::kTimeout, "timed out"};
      if (CheckInterruption(now, by_signal)) return Error{Code::kInterrupted, "interrupted"};
      const Duration left = UntilNextCheck(deadline) - now;
      const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      wait_ms = static_cast<int>(std::min<int64_t>(left_ms, 1'000'000'000));
    }
    pollfd watched{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&watched, 1, wait_ms);
    if (ready > 0) return Ok();
    by_signal = ready < 0 && errno == EINTR;
    if (ready < 0 && !by_signal) return Error{Code::kUnavailable, std::string(ErrorText(errno))};
  }
}

class PosixStream final : public BlockingStream {
 public:
  PosixStream(int fd, Clock& clock) : fd_(fd), clock_(clock) {}
  ~PosixStream() override { close(fd_); }

  Status Send(std::string_view bytes, Instant deadline) override {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        MUSTER_CHECK_OK(Await(fd_, POLLOUT, clock_, deadline));
      } else if (errno != EINTR) {
        return Lost(errno);
      }
    }
    return Ok();
  }

  Result<size_t> Receive(std::span<char> into, Instant deadline) override {
    while (true) {
      // Waiting first costs one system call more than trying first when the bytes are there
      // already, but a client that has just asked would nearly always try in vain.
      MUSTER_CHECK_OK(Await(fd_, POLLIN, clock_, deadline));
      const ssize_t got = recv(fd_, into.data(), into.size(), 0);
      if (got > 0) return static_cast<size_t>(got);
      if (got == 0) {
        return Error{
            Code::kClosed,
            Concat("Failed to recv, got 0 bytes. The server closed the connection ", Describe())};
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return Lost(errno);
    }
  }

  std::string Describe() const override {
    const auto name = [this](auto* get_name) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      return get_name(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? ToString(address)
                                                                              : std::string("?");
    };
    return Concat('(', name(&getsockname), " -> ", name(&getpeername), ')');
  }

 private:
  Error Lost(int number) const {
    return Error{Code::kUnavailable, Concat(ErrorText(number), ' ', Describe())};
  }

  const int fd_;
  Clock& clock_;
};

// kUnavailable: worth trying again. kInvalid: it is not, for this address.
Result<std::unique_ptr<BlockingStream>> ConnectOne(const sockaddr_storage& address, Clock& clock,
                                                   Instant deadline) {
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    // What others have taken, they may give back.
    const bool passes = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    return Error{passes ? Code::kUnavailable : Code::kInvalid,
                 Concat("socket: ", ErrorText(errno))};
  }
  auto stream = std::make_unique<PosixStream>(fd, clock);  // owns fd from here on
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  AvoidPacing(fd);
  const socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  int failure = 0;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) failure = errno;
  if (failure == EINPROGRESS || failure == EINTR) {
    if (const Status answered = Await(fd, POLLOUT, clock, deadline); !answered) {
      return Error{answered.error().code,
                   Concat(ToString(address), ": ", answered.error().message)};
    }
    socklen_t length = sizeof failure;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length);
  }
  if (failure == 0) return std::unique_ptr<BlockingStream>(std::move(stream));
  // EMFILE, EADDRNOTAVAIL and the like pass, too: what cannot pass is an address family that is not
  // there.
  const bool hopeless = failure == EAFNOSUPPORT || failure == EACCES || failure == EPERM;
  return Error{hopeless ? Code::kInvalid : Code::kUnavailable,
               Concat(ToString(address), ": ", ErrorText(failure))};
}

}  // namespace

Result<std::unique_ptr<BlockingStream>> PosixDialer::Dial(const Endpoint& to, Instant deadline) {
  MUSTER_TRY(const std::vector<sockaddr_storage> addresses, Resolve(to, clock_.Now(), deadline));
  return ConnectToAny(addresses, clock_, deadline);
}

Result<std::unique_ptr<BlockingStream>> ConnectToAny(std::span<const sockaddr_storage> addresses,
                                                     Clock& clock, Instant deadline) {
  Error failure{Code::kInvalid, "the name has no address"};
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto untried = static_cast<int64_t>(addresses.size() - i);
    const Instant now = clock.Now();
    const Duration share =
        std::min<Duration>((deadline - now) / untried, untried > 1 ? kShareMax : Duration::max());
    auto stream = ConnectOne(addresses[i], clock, now + share);
    if (stream || stream.error().code == Code::kInterrupted) return stream;
    // One address worth another try makes the endpoint worth it.
    if (failure.code == Code::kInvalid || stream.error().code != Code::kInvalid)
      failure = stream.error();
  }
  return failure;
}

}  // namespace muster
