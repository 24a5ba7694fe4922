// The keep-alives of all leases of one client, on one stream. Lives on the loop's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "etcd/grpc/bidi_stream.h"
#include "etcd/grpc/client.h"

namespace muster::etcd {

class LeaseStream final : public SharedStream {
 public:
  using Done = std::function<void(Result<Duration>)>;

  explicit LeaseStream(Client& client);
  ~LeaseStream() override;
  LeaseStream(const LeaseStream&) = delete;
  LeaseStream& operator=(const LeaseStream&) = delete;

  void KeepAlive(int64_t lease, Duration patience, Done done);

  bool IsWanted() const override { return waiting_ > 0; }
  std::shared_ptr<Connection> Over() const override { return rpc_ ? rpc_->over() : nullptr; }
  void Abandon(const Connection& connection) override;

 private:
  using Rpc = BidiStream<etcdserverpb::LeaseKeepAliveRequest, etcdserverpb::LeaseKeepAliveResponse>;
  struct Request {
    Done done;  ///< Null after its timeout: it only holds its place in the queue.
    bool sent = false;
    std::unique_ptr<Timer> timer;
  };

  void Open();
  void Connect();
  void Send(int64_t lease, Request& request);
  /// Limits the wait for the next message; after it another member is tried.
  void AwaitAnswer();
  void OnOpen();
  void OnMessage(const etcdserverpb::LeaseKeepAliveResponse& response);
  void OnLost(const grpc::Status& status, bool reached);
  void Reopen(std::string why, Duration pause);
  void OnTimeout(int64_t lease, const std::shared_ptr<Request>& request);
  void Refuse(const Error& why);

  Client& client_;
  /// By lease, in the order of the answers: an answer to an earlier request must not be taken for
  /// that to a later one.
  std::map<int64_t, std::deque<std::shared_ptr<Request>>> requests_;
  size_t waiting_ = 0;  ///< Requests whose callers still wait.
  bool opening_ = false;
  std::shared_ptr<Rpc> rpc_;
  size_t attempts_ = 0;
  size_t distrusted_ = 0;
  std::string trouble_;
  std::unique_ptr<Timer> pause_;
  std::unique_ptr<Timer> overdue_;  ///< While a message is awaited.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster::etcd
