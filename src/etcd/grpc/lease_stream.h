// The keep-alives of all leases of one client, on one stream. Lives on the loop's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "etcd/grpc/shared_stream.h"

namespace muster::etcd {

class LeaseStream final : public ReopenedStream<etcdserverpb::LeaseKeepAliveRequest,
                                                etcdserverpb::LeaseKeepAliveResponse> {
 public:
  using Done = std::function<void(Result<Duration>)>;

  using ReopenedStream::ReopenedStream;
  ~LeaseStream() override;

  void KeepAlive(int64_t lease, Duration patience, Done done);

  bool IsWanted() const override { return waiting_ > 0; }

 private:
  struct Request {
    Done done;  ///< Null after its timeout: it only holds its place in the queue.
    bool sent = false;
    std::unique_ptr<Timer> timer;
  };

  std::unique_ptr<Rpc::Stream> Prepare(Connection& over, grpc::ClientContext& context,
                                       grpc::CompletionQueue* queue) override;
  void Send(int64_t lease, Request& request);
  /// Limits the wait for the next message; after it another member is tried.
  void AwaitAnswer();
  void OnOpen() override;
  void OnMessage(const etcdserverpb::LeaseKeepAliveResponse& response) override;
  void OnLost(const grpc::Status& status, bool reached) override;
  void Reopen(const std::string& why, Duration pause) override;
  void Refuse(const Error& why) override;
  void OnTimeout(int64_t lease, const std::shared_ptr<Request>& request);

  /// By lease, in the order of the answers: an answer to an earlier request must not be taken for
  /// that to a later one.
  std::map<int64_t, std::deque<std::shared_ptr<Request>>> requests_;
  size_t waiting_ = 0;  ///< Requests whose callers still wait.
  size_t distrusted_ = 0;
  std::string trouble_;
  std::unique_ptr<Timer> overdue_;  ///< While a message is awaited.
};

}  // namespace muster::etcd
