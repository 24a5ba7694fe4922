#include "os/posix/posix_dialer.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/owned_fd.h"
#include "os/posix/system_error.h"
#include "os/posix/tcp_socket.h"

namespace muster {

namespace {

// No address but the last may take longer than this, whatever the caller's deadline. A live server
// answers within three seconds, even if its first packets are lost.
constexpr Duration kShareMax = 10s;

// Waits for `events` on `fd`. kTimeout at the deadline, even if there are events: a peer that keeps
// this thread busy must not do so without end. A signal does not end the wait, unless the caller
// has requested it: kInterrupted.
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
  PosixStream(OwnedFd fd, Clock& clock) : fd_(std::move(fd)), clock_(clock) {}

  Status Send(std::string_view bytes, Instant deadline) override {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        MUSTER_CHECK_OK(Await(fd_.get(), POLLOUT, clock_, deadline));
      } else if (errno != EINTR) {
        return Lost(errno);
      }
    }
    return Ok();
  }

  Result<size_t> Receive(std::span<char> into, Instant deadline) override {
    while (true) {
      // If the bytes have arrived already, waiting first costs one more system call than reading
      // first. But just after a request, reading first would nearly always fail.
      MUSTER_CHECK_OK(Await(fd_.get(), POLLIN, clock_, deadline));
      const ssize_t got = recv(fd_.get(), into.data(), into.size(), 0);
      if (got > 0) return static_cast<size_t>(got);
      if (got == 0) {
        return MakeError(Code::kClosed,
                         "Failed to recv, got 0 bytes. The server closed the connection ",
                         Describe());
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return Lost(errno);
    }
  }

  /// "(127.0.0.1:4711 -> 127.0.0.1:29500)": for messages.
  std::string Describe() const {
    const auto name = [](const std::optional<sockaddr_storage>& address) {
      return address ? ToString(*address) : std::string("?");
    };
    return Concat('(', name(LocalAddress(fd_.get())), " -> ", name(PeerAddress(fd_.get())), ')');
  }

 private:
  Error Lost(int number) const {
    return MakeError(Code::kUnavailable, ErrorText(number), ' ', Describe());
  }

  const OwnedFd fd_;
  Clock& clock_;
};

// kUnavailable: another attempt may succeed. kInvalid: it cannot, for this address.
Result<std::unique_ptr<BlockingStream>> ConnectOne(const sockaddr_storage& address, Clock& clock,
                                                   Instant deadline) {
  OwnedFd fd = OpenClientSocket(address.ss_family);
  if (!fd.is_open()) {
    // Other processes may release what they hold.
    const bool passes = IsOneOf(errno, {EMFILE, ENFILE, ENOBUFS, ENOMEM});
    return MakeError(passes ? Code::kUnavailable : Code::kInvalid, "socket: ", ErrorText(errno));
  }
  int failure = ConnectSocket(fd.get(), address);
  if (failure == EINPROGRESS || failure == EINTR) {
    if (const Status answered = Await(fd.get(), POLLOUT, clock, deadline); !answered) {
      return MakeError(answered.error().code, ToString(address), ": ", answered.error().message);
    }
    failure = ConnectError(fd.get());
  }
  if (failure == 0) {
    return std::unique_ptr<BlockingStream>(std::make_unique<PosixStream>(std::move(fd), clock));
  }
  // EMFILE, EADDRNOTAVAIL and the like are temporary, too; a missing address family is not.
  const bool hopeless = IsOneOf(failure, {EAFNOSUPPORT, EACCES, EPERM});
  return MakeError(hopeless ? Code::kInvalid : Code::kUnavailable, ToString(address), ": ",
                   ErrorText(failure));
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
    // If another attempt may succeed for one address, it may for the endpoint.
    if (failure.code == Code::kInvalid || stream.error().code != Code::kInvalid)
      failure = stream.error();
  }
  return failure;
}

}  // namespace muster
