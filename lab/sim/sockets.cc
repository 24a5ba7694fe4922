#include "sim/sockets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "sim/process.h"

namespace muster::sim {

namespace {

class SimStream final : public Stream {
 public:
  SimStream(std::shared_ptr<Socket> socket, const SimLoop* loop)
      : socket_(std::move(socket)), loop_(loop) {}
  ~SimStream() override {
    *alive_ = false;
    socket_->Close();
  }

  void Start(StreamHandler& handler) override {
    handler_ = &handler;
    socket_->on_event = [this] {
      if (loop_ != nullptr && loop_->IsLate()) return LookLater();
      Look();
    };
    // Handles what arrived before the stream was started. Later: its owner is not ready for
    // callbacks yet.
    if (!socket_->inbox.empty() || socket_->ended) LookLater();
  }
  void Write(std::string_view bytes) override { socket_->Write(bytes); }
  void WriteLarge(std::string& bytes) override {
    socket_->Write(bytes);
    bytes.clear();
  }
  size_t queued_bytes() const override { return socket_->queued(); }
  uint64_t taken_bytes() const override { return socket_->written() - socket_->queued(); }
  void PauseReading() override { reading_ = false; }
  void ResumeReading() override {
    reading_ = true;
    if (!socket_->inbox.empty() || socket_->ended) LookLater();
  }
  std::string peer() const override { return Side(true); }
  std::string local() const override { return Side(false); }

 private:
  std::string Side(bool other) const {
    Connection& connection = socket_->connection();
    return connection.address(other ? 1 - socket_->side() : socket_->side());
  }

  void LookLater() {
    SimProcess* owner = socket_->owner();
    if (owner == nullptr) return;
    const WorldTime now = owner->scheduler().now();
    owner->DoAt(loop_ == nullptr ? now : loop_->OnTime(now), [this, alive = alive_] {
      if (*alive) Look();
    });
  }

  void Look() {
    const auto alive = alive_;
    if (std::exchange(socket_->drained, false)) handler_->OnDrained();
    if (!*alive || !reading_) return;
    if (!socket_->inbox.empty()) {
      Network& network = socket_->owner()->network();
      if (network.before_read) network.before_read(socket_->connection(), socket_->side());
      const std::string bytes = std::exchange(socket_->inbox, {});
      socket_->Consumed(bytes.size());
      handler_->OnBytes(bytes);
    }
    if (!*alive || !socket_->ended || std::exchange(reported_, true)) return;
    handler_->OnClosed(socket_->orderly ? "" : "connection reset by peer");
  }

  std::shared_ptr<Socket> socket_;
  const SimLoop* const loop_;
  StreamHandler* handler_ = nullptr;
  bool reading_ = true;
  bool reported_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class SimBlockingStream final : public BlockingStream {
 public:
  SimBlockingStream(SimProcess& process, std::shared_ptr<Socket> socket)
      : process_(process), socket_(std::move(socket)) {
    socket_->on_event = [this] {
      if (waiter_ != nullptr) process_.Wake(*waiter_);
    };
  }
  ~SimBlockingStream() override { socket_->Close(); }

  Status Send(std::string_view bytes, Instant) override {
    if (IsOver()) return Error{Code::kUnavailable, "connection reset by peer"};
    socket_->Write(bytes);
    return Ok();
  }

  Result<size_t> Receive(std::span<char> into, Instant deadline) override {
    while (socket_->inbox.empty()) {
      if (socket_->ended && socket_->orderly) return Error{Code::kClosed, "the peer has closed"};
      if (IsOver()) return Error{Code::kUnavailable, "connection reset by peer"};
      if (process_.Now() >= deadline) return Error{Code::kTimeout, "no answer in time"};
      waiter_ = process_.current();
      process_.Park(deadline);
      waiter_ = nullptr;
    }
    const size_t count = std::min(into.size(), socket_->inbox.size());
    std::memcpy(into.data(), socket_->inbox.data(), count);
    socket_->inbox.erase(0, count);
    socket_->Consumed(count);
    return count;
  }

 private:
  bool IsOver() const { return socket_->ended || !process_.alive(); }

  SimProcess& process_;
  std::shared_ptr<Socket> socket_;
  SimProcess::Strand* waiter_ = nullptr;
};

struct SimAttempt final : public Connector::Attempt {
  ~SimAttempt() override { *wanted = false; }
  std::shared_ptr<bool> wanted = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<Stream> MakeStream(std::shared_ptr<Socket> socket, const SimLoop* loop) {
  return std::make_unique<SimStream>(std::move(socket), loop);
}

std::unique_ptr<Connector::Attempt> SimConnector::Connect(
    const Endpoint& to, const ConnectOptions& options,
    std::function<void(Result<StreamPtr>)> done) {
  auto attempt = std::make_unique<SimAttempt>();
  process_.network().Connect(
      process_, to, options.patience,
      [wanted = attempt->wanted, done = std::move(done),
       unanswered = options.unanswered_max](Result<std::shared_ptr<Socket>> socket) {
        if (!*wanted) {
          if (socket) (*socket)->Close();
          return;
        }
        if (!socket) return done(socket.error());
        (*socket)->unanswered_max = unanswered;
        done(MakeStream(std::move(*socket)));
      });
  return attempt;
}

Result<std::unique_ptr<BlockingStream>> SimDialer::Dial(const Endpoint& to, Instant deadline) {
  if (!process_.alive()) {
    process_.Park(deadline);
    return Error{Code::kTimeout, "the process is dead"};
  }
  struct Waiting {
    SimProcess::Strand* strand;
    std::optional<Result<std::shared_ptr<Socket>>> socket{};
  };
  const auto waiting = std::make_shared<Waiting>(Waiting{process_.current()});
  const Duration patience = deadline == Instant::Never() ? Duration(1h) : deadline - process_.Now();
  if (patience <= 0s) return Error{Code::kTimeout, "no time to connect"};
  process_.network().Connect(process_, to, patience,
                             [this, waiting](Result<std::shared_ptr<Socket>> socket) {
                               if (waiting->strand == nullptr) {  // it has timed out
                                 if (socket) (*socket)->Close();
                                 return;
                               }
                               waiting->socket = std::move(socket);
                               process_.Wake(*waiting->strand);
                             });
  while (!waiting->socket && process_.alive() && process_.Now() < deadline) process_.Park(deadline);
  waiting->strand = nullptr;
  if (!waiting->socket) return Error{Code::kTimeout, Concat(to.ToString(), ": no answer")};
  if (!*waiting->socket) return waiting->socket->error();
  return std::unique_ptr<BlockingStream>(
      std::make_unique<SimBlockingStream>(process_, std::move(**waiting->socket)));
}

}  // namespace muster::sim
