#include "load/opener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/tcp_socket.h"

namespace muster::load {

namespace {

using SteadyClock = std::chrono::steady_clock;
using Clock = SteadyClock::time_point;

/// Collects the answers of sockets that have been greeted.
class Answers {
 public:
  Answers(std::string answer, size_t count, Clock deadline)
      : answer_(std::move(answer)), got_(count), deadline_(deadline) {}

  Status Begin() {
    epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    return epoll_.is_open() ? Ok() : Status(SystemError("epoll_create1"));
  }

  Status Watch(int fd, size_t number, uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = (uint64_t{number} << 32) | uint64_t(fd)}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Ok();
    if (errno == EEXIST && epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return Ok();
    return SystemError("epoll_ctl");
  }

  size_t complete() const { return complete_; }

  /// Waits for events. Collects answers, and passes sockets that became writable to `writable`.
  Status Turn(const std::function<Status(int fd, size_t number)>& writable) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - SteadyClock::now());
    if (left <= 0ms)
      return Error{Code::kTimeout, Concat("only ", complete_, " of ", got_.size(), " answered")};
    std::array<epoll_event, 256> events;
    const int count =
        epoll_wait(epoll_.get(), events.data(), events.size(), static_cast<int>(left.count()));
    if (count < 0 && errno != EINTR) return SystemError("epoll_wait");
    for (int i = 0; i < count; ++i) {
      const uint64_t data = events[static_cast<size_t>(i)].data.u64;
      const int fd = static_cast<int>(data & 0xffffffff);
      const size_t number = data >> 32;
      if (events[static_cast<size_t>(i)].events & EPOLLOUT) {
        MUSTER_CHECK_OK(writable(fd, number));
      } else {
        MUSTER_CHECK_OK(Read(fd, number));
      }
    }
    return Ok();
  }

 private:
  Status Read(int fd, size_t number) {
    char bytes[64];
    const size_t missing = answer_.size() - got_[number];
    const ssize_t count = recv(fd, bytes, std::min(missing, sizeof bytes), 0);
    if (count < 0 && errno == EAGAIN) return Ok();
    if (count < 0) return SystemError("a connection failed");
    if (count == 0) return Error{Code::kUnavailable, "the server hung up on a greeting"};
    const auto size = static_cast<size_t>(count);
    if (answer_.compare(got_[number], size, bytes, size) != 0) {
      return Error{Code::kUnavailable,
                   Concat("a greeting was answered with '", Printable({bytes, size}), "'")};
    }
    got_[number] = static_cast<uint8_t>(got_[number] + size);
    if (got_[number] < answer_.size()) return Ok();
    ++complete_;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    return Ok();
  }

  const std::string answer_;
  std::vector<uint8_t> got_;  // received bytes of the answer, by connection
  const Clock deadline_;
  size_t complete_ = 0;
  Descriptor epoll_;
};

class Opener {
 public:
  Opener(const OpenOptions& options, const sockaddr_storage& address)
      : options_(options),
        address_(address),
        answers_(options.answer, options.count, SteadyClock::now() + options.patience) {}

  Result<Opened> Run() {
    MUSTER_CHECK_OK(answers_.Begin());
    const Clock start = SteadyClock::now();
    while (answers_.complete() < options_.count) {
      while (opened_.sockets.size() < options_.count &&
             opened_.sockets.size() - answers_.complete() < options_.in_flight_max) {
        MUSTER_CHECK_OK(Connect());
      }
      MUSTER_CHECK_OK(answers_.Turn([this](int fd, size_t number) { return Greet(fd, number); }));
    }
    opened_.elapsed = SteadyClock::now() - start;
    return std::move(opened_);
  }

 private:
  Status Connect() {
    Descriptor socket(OpenClientSocket(address_.ss_family).Release());
    if (!socket.is_open()) return SystemError("socket");
    const int failure = ConnectSocket(socket.get(), address_);
    if (failure != 0 && failure != EINPROGRESS) return SystemError("connect");
    const int fd = socket.get();
    const size_t number = opened_.sockets.size();
    opened_.sockets.push_back(std::move(socket));
    return Greet(fd, number);
  }

  // Over loopback the connection is established by now; trying first saves a turn through epoll.
  Status Greet(int fd, size_t number) {
    const std::string hello = options_.hello(number);
    const ssize_t sent = send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(hello.size())) return answers_.Watch(fd, number, EPOLLIN);
    if (sent >= 0) return Error{Code::kUnavailable, "a greeting did not fit into one write"};
    if (errno == EAGAIN || errno == ENOTCONN) return answers_.Watch(fd, number, EPOLLOUT);
    return SystemError("connect");
  }

  const OpenOptions& options_;
  const sockaddr_storage address_;
  Answers answers_;
  Opened opened_;
};

Error About(const Endpoint& server, const Error& error) {
  return Error{error.code, Concat(server.ToString(), ": ", error.message)};
}

}  // namespace

Result<Opened> OpenConnections(const OpenOptions& options) {
  Result<std::vector<sockaddr_storage>> addresses =
      Resolve(options.server, Instant{}, Instant{} + options.patience);
  if (!addresses) return About(options.server, addresses.error());
  // A name may resolve to an address where nothing listens: the first one that answers is used.
  Error failure{Code::kUnavailable, "no address"};
  for (const sockaddr_storage& address : *addresses) {
    Result<Opened> opened = Opener(options, address).Run();
    if (opened) return opened;
    failure = std::move(opened).error();
  }
  return About(options.server, failure);
}

Status AskAll(const std::vector<Descriptor>& sockets, const std::string& question,
              const std::string& answer, Duration patience) {
  Answers answers(answer, sockets.size(), SteadyClock::now() + patience);
  MUSTER_CHECK_OK(answers.Begin());
  for (size_t i = 0; i < sockets.size(); ++i) {
    const ssize_t sent = send(sockets[i].get(), question.data(), question.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(question.size())) return SystemError("send");
    MUSTER_CHECK_OK(answers.Watch(sockets[i].get(), i, EPOLLIN));
  }
  while (answers.complete() < sockets.size()) {
    MUSTER_CHECK_OK(answers.Turn([](int, size_t) { return Ok(); }));
  }
  return Ok();
}

}  // namespace muster::load
