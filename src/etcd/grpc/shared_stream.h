// A stream of one client that several requests share, and that is reopened after failures. Lives on
// the loop's thread.
#pragma once

#include <memory>
#include <string>

#include "base/text.h"
#include "etcd/grpc/bidi_stream.h"
#include "etcd/grpc/client.h"

namespace muster::etcd {

template <typename Request, typename Response>
class ReopenedStream : public SharedStream {
 public:
  explicit ReopenedStream(Client& client) : client_(client) { client_.AddStream(*this); }
  ~ReopenedStream() override { Close(); }
  ReopenedStream(const ReopenedStream&) = delete;
  ReopenedStream& operator=(const ReopenedStream&) = delete;

  std::shared_ptr<Connection> Over() const final { return rpc_ ? rpc_->over() : nullptr; }
  void Abandon(const Connection& connection) final {
    if (Over().get() != &connection) return;
    Reopen(Concat("etcd at ", connection.endpoint.ToString(), " does not answer"),
           client_.Pause(++attempts_));
  }

 protected:
  using Rpc = BidiStream<Request, Response>;

  /// Unless it is open, or about to be.
  void OpenIfClosed() {
    if (!rpc_ && !opening_ && !pause_) Open();
  }
  void Close() {
    if (rpc_) rpc_->Drop();
    rpc_.reset();
  }
  /// Opens it after `pause`, if it is still wanted then.
  void OpenAfter(Duration pause) {
    pause_ = client_.After(pause, [this] {
      pause_.reset();
      if (!rpc_ && !opening_ && IsWanted()) Open();
    });
  }

  virtual std::unique_ptr<typename Rpc::Stream> Prepare(Connection& over,
                                                        grpc::ClientContext& context,
                                                        grpc::CompletionQueue* queue) = 0;
  virtual void OnOpen() = 0;
  virtual void OnMessage(const Response& response) = 0;
  virtual void OnLost(const grpc::Status& status, bool reached) = 0;
  virtual void Reopen(const std::string& why, Duration pause) = 0;
  /// Reports a permanent error to all requests. May destroy the stream.
  virtual void Refuse(const Error& why) = 0;

  Client& client_;
  std::shared_ptr<Rpc> rpc_;
  size_t attempts_ = 0;  ///< Since the last message.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

 private:
  void Open() {
    opening_ = true;
    client_.WithToken([this, alive = std::weak_ptr(alive_)](const Status& status) {
      if (alive.expired()) return;
      opening_ = false;
      if (status) return Connect();
      if (status.error().code == Code::kInvalid) return Refuse(status.error());
      Reopen(status.error().message, client_.Pause(0));
    });
  }

  void Connect() {
    if (rpc_ || !IsWanted()) return;
    const std::shared_ptr<Connection> over = client_.Current();
    rpc_ = std::make_shared<Rpc>(
        client_.completions(), over,
        typename Rpc::Listener{
            .on_open = [this] { OnOpen(); },
            .on_message = [this](const Response& response) { OnMessage(response); },
            .on_end = [this](const grpc::Status& status,
                             bool reached) { OnLost(status, reached); }});
    client_.AddCredentials(rpc_->context());
    rpc_->Start(Prepare(*over, rpc_->context(), client_.completions().queue()));
  }

  bool opening_ = false;
  std::unique_ptr<Timer> pause_;
};

}  // namespace muster::etcd
