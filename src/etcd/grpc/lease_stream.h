// The keep-alives of all leases of one client, over one stream. Lives on the loop's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "etcd/grpc/client.h"
#include "etcd/grpc/line.h"

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
  std::shared_ptr<Connection> Over() const override { return line_ ? line_->over() : nullptr; }
  void Abandon(const Connection& connection) override;

 private:
  using LeaseLine = Line<etcdserverpb::LeaseKeepAliveRequest, etcdserverpb::LeaseKeepAliveResponse>;
  struct Ask {
    Done done;  ///< Null when its patience is over: it only holds its place in the row.
    bool sent = false;
    std::unique_ptr<Timer> timer;
  };

  void Open();
  void Connect();
  void Send(int64_t lease, Ask& ask);
  /// Until the next message; then it is another member's turn.
  void AwaitAnswer();
  void OnOpen();
  void OnMessage(const etcdserverpb::LeaseKeepAliveResponse& response);
  void OnLost(const grpc::Status& status, bool reached);
  void Reopen(std::string why, Duration pause);
  void OnOverdue(int64_t lease, const std::shared_ptr<Ask>& ask);
  void Refuse(const Error& why);

  Client& client_;
  /// By lease, in the order in which answers come: one that was sent before a call was made must
  /// not answer it.
  std::map<int64_t, std::deque<std::shared_ptr<Ask>>> asks_;
  size_t waiting_ = 0;  ///< Asks with somebody behind them.
  bool opening_ = false;
  std::shared_ptr<LeaseLine> line_;
  size_t attempts_ = 0;
  size_t distrusted_ = 0;
  std::string trouble_;
  std::unique_ptr<Timer> pause_;
  std::unique_ptr<Timer> overdue_;  ///< While somebody waits for a line to say something.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster::etcd
