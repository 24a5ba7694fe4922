// A connection attempt: the lookup of the name, then one address after the other.
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/text.h"
#include "os/posix/address.h"
#include "os/posix/owned_fd.h"
#include "os/posix/system_error.h"
#include "os/posix/tcp_socket.h"
#include "os/uv/uv_loop.h"
#include "os/uv/uv_stream.h"

namespace muster {

namespace {

using Addresses = std::vector<sockaddr_storage>;

// A lookup, and the sockets that are tried one after the other. Callbacks of libuv hold it, too: it
// lives until the last of them has run, but reports nothing after it was cancelled.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(UvLoop& loop, Endpoint to, const ConnectOptions& options,
          std::function<void(Result<StreamPtr>)> done)
      : loop_(loop), to_(std::move(to)), options_(options), done_(std::move(done)) {}

  void Begin() {
    ends_ = loop_.Now() + options_.patience;
    if (Result<Addresses> literal = ResolveLiteral(to_)) {
      addresses_ = std::move(*literal);
      // Not from inside Connect(): the caller does not have its attempt yet.
      loop_.Post([self = shared_from_this()] { self->TryNext(); });
    } else {
      LookUp();
    }
  }

  void Cancel() {
    done_ = nullptr;
    timer_.reset();
    DropSocket();
  }

 private:
  // --- The name

  void LookUp() {
    lookup_.data = this;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    const std::string port = Concat(to_.port);
    const int failure =
        uv_getaddrinfo(loop_.raw(), &lookup_, &OnLookedUp, to_.host.c_str(), port.c_str(), &hints);
    if (failure != 0) {
      loop_.Post([self = shared_from_this(), failure] { self->Fail(uv_strerror(failure)); });
      return;
    }
    looking_up_ = shared_from_this();
    SetTimer(options_.patience, "looking up the name took too long");
  }

  static void OnLookedUp(uv_getaddrinfo_t* request, int status, addrinfo* list) {
    const auto self = std::exchange(static_cast<Attempt*>(request->data)->looking_up_, nullptr);
    if (list != nullptr) self->addresses_ = TakeAddresses(list);
    if (!self->done_) return;
    self->timer_.reset();
    if (status != 0) return self->Fail(uv_strerror(status));
    self->TryNext();
  }

  // --- The sockets

  void TryNext() {
    if (!done_) return;
    if (next_ == addresses_.size()) return Fail(failure_.empty() ? "no address" : failure_);
    const sockaddr_storage& address = addresses_[next_++];
    fd_ = OpenClientSocket(address.ss_family);
    if (!fd_.is_open()) return FailAddress(errno);
    if (options_.unanswered_max > 0s) {
      const auto ms = static_cast<unsigned>(
          std::chrono::ceil<std::chrono::milliseconds>(options_.unanswered_max).count());
      setsockopt(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    }
    const int failure = ConnectSocket(fd_.get(), address);
    if (failure == 0) return Connected();
    if (failure != EINPROGRESS) return FailAddress(failure);
    AwaitConnected();
  }

  void AwaitConnected() {
    watch_ = new Watch{.owner = shared_from_this()};
    if (const int failure = uv_poll_init(loop_.raw(), &watch_->poll, fd_.get()); failure != 0) {
      delete std::exchange(watch_, nullptr);
      return FailAddress(-failure);
    }
    watch_->poll.data = watch_;
    uv_poll_start(&watch_->poll, UV_WRITABLE, [](uv_poll_t* poll, int, int) {
      static_cast<Watch*>(poll->data)->owner->OnWritable();
    });
    const auto untried = static_cast<int64_t>(addresses_.size() - next_ + 1);
    SetTimer(std::max<Duration>((ends_ - loop_.Now()) / untried, 1ms), "no answer");
  }

  void OnWritable() {
    const auto self = shared_from_this();  // the watch may hold the last reference
    timer_.reset();
    StopWatching();
    if (const int failure = ConnectError(fd_.get()); failure != 0) return FailAddress(failure);
    Connected();
  }

  void Connected() {
    StreamPtr stream = UvStream::Open(loop_, fd_.Release());
    if (!stream) return Fail("libuv refuses the socket");
    Finish(std::move(stream));
  }

  void FailAddress(int number) {
    failure_ = Concat(ToString(addresses_[next_ - 1]), ": ", ErrorText(number));
    DropSocket();
    TryNext();
  }

  // --- The end

  void SetTimer(Duration time, const char* what) {
    timer_ = loop_.After(time, [self = shared_from_this(), what] {
      self->failure_ = Concat(self->to_.ToString(), ": ", what);
      self->DropSocket();
      if (self->addresses_.empty()) return self->Fail(self->failure_);
      self->TryNext();
    });
  }

  void Fail(std::string why) { Finish(Error{Code::kUnavailable, std::move(why)}); }

  void Finish(Result<StreamPtr> result) {
    timer_.reset();
    if (auto done = std::exchange(done_, nullptr)) done(std::move(result));
  }

  void DropSocket() {
    StopWatching();
    fd_.Close();
  }

  struct Watch {
    uv_poll_t poll{};
    std::shared_ptr<Attempt> owner{};
  };

  void StopWatching() {
    if (watch_ == nullptr) return;
    uv_poll_stop(&watch_->poll);
    CloseAndDelete(std::exchange(watch_, nullptr), &Watch::poll);
  }

  UvLoop& loop_;
  const Endpoint to_;
  const ConnectOptions options_;
  std::function<void(Result<StreamPtr>)> done_;
  Instant ends_{};
  uv_getaddrinfo_t lookup_{};
  std::shared_ptr<Attempt> looking_up_;  // this, until libuv no longer uses lookup_
  Addresses addresses_;
  size_t next_ = 0;
  OwnedFd fd_;
  Watch* watch_ = nullptr;
  std::unique_ptr<Timer> timer_;
  std::string failure_;
};

class Handle final : public Connector::Attempt {
 public:
  explicit Handle(std::shared_ptr<muster::Attempt> attempt) : attempt_(std::move(attempt)) {}
  ~Handle() override { attempt_->Cancel(); }

 private:
  std::shared_ptr<muster::Attempt> attempt_;
};

}  // namespace

std::unique_ptr<Connector::Attempt> UvConnector::Connect(
    const Endpoint& to, const ConnectOptions& options,
    std::function<void(Result<StreamPtr>)> done) {
  auto attempt = std::make_shared<muster::Attempt>(loop_, to, options, std::move(done));
  attempt->Begin();
  return std::make_unique<Handle>(std::move(attempt));
}

}  // namespace muster
