// A bidirectional stream of gRPC for a loop: sends messages in order, and reports messages and the
// end. Lives on the loop's thread; shared with the operations under way.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "etcd/grpc/completions.h"
#include "etcd/grpc/failure.h"
#include "etcd/grpc/members.h"

namespace muster::etcd {

template <typename Request, typename Response>
class BidiStream : public std::enable_shared_from_this<BidiStream<Request, Response>> {
 public:
  using Stream = grpc::ClientAsyncReaderWriter<Request, Response>;
  struct Listener {
    std::function<void()> on_open;
    std::function<void(const Response&)> on_message;
    std::function<void(const grpc::Status&, bool reached)> on_end;
  };

  BidiStream(Completions& completions, std::shared_ptr<Connection> over, Listener listener)
      : completions_(completions), over_(std::move(over)), listener_(std::move(listener)) {}
  BidiStream(const BidiStream&) = delete;
  BidiStream& operator=(const BidiStream&) = delete;

  grpc::ClientContext& context() { return context_; }
  const std::shared_ptr<Connection>& over() const { return over_; }
  bool is_open() const { return open_; }

  void Start(std::unique_ptr<Stream> stream) {
    stream_ = std::move(stream);
    stream_->StartCall(MakeTag([this](bool ok) {
      if (!ok) return Finish();
      open_ = true;
      Read();
      listener_.on_open();
      Pump();
    }));
  }

  void Send(Request request) {
    outbox_.push_back(std::move(request));
    Pump();
  }

  /// Ends it; the listener is not called any more.
  void Drop() {
    dropped_ = true;
    context_.TryCancel();
  }

 private:
  void* MakeTag(std::function<void(bool ok)> then) {
    return completions_.MakeTag([self = this->shared_from_this(), then = std::move(then)](bool ok) {
      if (!self->dropped_) then(ok);
    });
  }

  void Read() {
    stream_->Read(&incoming_, MakeTag([this](bool ok) {
      if (!ok) return Finish();
      // The listener may drop us. gRPC fills in the next message only once asked to.
      listener_.on_message(incoming_);
      if (!dropped_) Read();
    }));
  }

  void Pump() {
    if (!open_ || writing_ || finishing_ || outbox_.empty()) return;
    writing_ = true;
    outgoing_ = std::move(outbox_.front());
    outbox_.pop_front();
    stream_->Write(outgoing_, MakeTag([this](bool ok) {
                     writing_ = false;
                     if (ok) Pump();  // otherwise reading ends, too
                   }));
  }

  void Finish() {
    if (finishing_) return;
    finishing_ = true;
    stream_->Finish(&status_, MakeTag([this](bool) {
      const bool reached = IsReached(context_.peer());
      dropped_ = true;
      listener_.on_end(status_, reached);
    }));
  }

  Completions& completions_;
  const std::shared_ptr<Connection> over_;
  const Listener listener_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  Response incoming_;
  Request outgoing_;
  std::deque<Request> outbox_;
  grpc::Status status_;
  bool open_ = false;
  bool writing_ = false;
  bool finishing_ = false;
  bool dropped_ = false;
};

}  // namespace muster::etcd
