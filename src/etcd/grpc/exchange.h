// One request and its answer, which may take several attempts. Lives on the loop's thread; shared
// with the attempt under way.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "etcd/grpc/members.h"
#include "os/ports/loop.h"

namespace muster::etcd {

class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Starts an attempt on `over`, with `context`; its end comes as `tag`, and is in `status`.
  virtual void Send(grpc::CompletionQueue* queue, void* tag) = 0;
  virtual void Succeed() = 0;
  virtual void Fail(Error error) = 0;

  Instant deadline{};
  bool repeatable = false;  ///< To do it twice is as good as once.
  bool anonymous = false;   ///< Needs no token.

  std::shared_ptr<Connection> over;
  std::unique_ptr<grpc::ClientContext> context;
  grpc::Status status;

  size_t attempts = 0;
  size_t distrusted = 0;  ///< Of all attempts' failures, in sum.
  size_t stale = 0;       ///< Attempts that failed for the token.
  bool maybe_done = false;
  bool ended = false;
  std::string trouble;           ///< What the last attempt failed with.
  std::unique_ptr<Timer> timer;  ///< Until the next attempt, or the end of waiting for a token.
};

/// Of one method of etcd's.
template <typename Request, typename Response>
class ExchangeOf final : public Exchange {
 public:
  using Reader = grpc::ClientAsyncResponseReader<Response>;
  using Prepare = std::function<std::unique_ptr<Reader>(Connection&, grpc::ClientContext*,
                                                        const Request&, grpc::CompletionQueue*)>;

  ExchangeOf(Request request, Prepare prepare, std::function<void(Result<const Response*>)> done)
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

}  // namespace muster::etcd
