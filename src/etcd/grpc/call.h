// One request and its response, possibly after several attempts. Lives on the loop's thread; shared
// with the attempt under way.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "etcd/grpc/members.h"
#include "os/ports/loop.h"

namespace muster::etcd {

class Call {
 public:
  virtual ~Call() = default;

  /// Starts an attempt on `over` with `context`. It ends with `tag`, and sets `status`.
  virtual void Send(grpc::CompletionQueue* queue, void* tag) = 0;
  virtual void Succeed() = 0;
  virtual void Fail(Error error) = 0;

  Instant deadline{};
  bool repeatable = false;  ///< Doing it twice has the effect of once.
  bool anonymous = false;   ///< Needs no token.

  std::shared_ptr<Connection> over;
  std::unique_ptr<grpc::ClientContext> context;
  grpc::Status status;

  size_t attempts = 0;
  size_t distrusted = 0;  ///< The sum over all attempts.
  size_t stale = 0;       ///< Attempts that failed because of the token.
  bool maybe_done = false;
  bool ended = false;
  std::string trouble;           ///< What the last attempt failed with.
  std::unique_ptr<Timer> timer;  ///< Until the next attempt, or the end of waiting for a token.
};

/// A call of one method of etcd.
template <typename Request, typename Response>
class CallOf final : public Call {
 public:
  using Reader = grpc::ClientAsyncResponseReader<Response>;
  using Prepare = std::function<std::unique_ptr<Reader>(Connection&, grpc::ClientContext*,
                                                        const Request&, grpc::CompletionQueue*)>;

  CallOf(Request request, Prepare prepare, std::function<void(Result<const Response*>)> done)
      : request_(std::move(request)), prepare_(std::move(prepare)), done_(std::move(done)) {}

  void Send(grpc::CompletionQueue* queue, void* tag) override {
    response_.Clear();
    reader_ = prepare_(*over, context.get(), request_, queue);
    reader_->StartCall();
    reader_->Finish(&response_, &status, tag);
  }
  void Succeed() override { done_(&response_); }
  void Fail(Error error) override { done_(std::move(error)); }

 private:
  const Request request_;
  const Prepare prepare_;
  const std::function<void(Result<const Response*>)> done_;
  Response response_;
  std::unique_ptr<Reader> reader_;
};

/// For a stub of the connection and its method PrepareAsync...().
template <typename Stub, typename Request, typename Response>
std::shared_ptr<Call> MakeCall(
    Request request, const std::unique_ptr<Stub> Connection::*stub,
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*prepare)(
        grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
    std::type_identity_t<std::function<void(Result<const Response*>)>> done) {
  return std::make_shared<CallOf<Request, Response>>(
      std::move(request),
      [stub, prepare](Connection& over, grpc::ClientContext* context, const Request& message,
                      grpc::CompletionQueue* queue) {
        return ((*(over.*stub)).*prepare)(context, message, queue);
      },
      std::move(done));
}

}  // namespace muster::etcd
