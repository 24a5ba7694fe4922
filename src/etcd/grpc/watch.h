// A watch: a stream of gRPC with one member, which is reopened after failures at the revision where
// it was. Lives on the loop's thread.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/lifetime.h"
#include "base/text.h"
#include "etcd.pb.h"
#include "etcd/etcd_port.h"
#include "etcd/grpc/client.h"

namespace muster::etcd {

class GrpcWatch final : public EtcdWatch {
 public:
  /// From `revision` on; 0: from the present one.
  GrpcWatch(Client& client, EtcdRange range, int64_t revision, EtcdWatcher& watcher);
  ~GrpcWatch() override { Stop(); }
  GrpcWatch(const GrpcWatch&) = delete;
  GrpcWatch& operator=(const GrpcWatch&) = delete;

  /// Ends it without a report. It uses the client no more.
  void Stop();
  /// Null: it has no connection.
  std::shared_ptr<Connection> over() const { return stream_ ? stream_->over : nullptr; }
  /// The member at the other end of this connection does not answer any more.
  void Abandon(const Connection& connection);

 private:
  /// Shared with the operations under way.
  struct Stream {
    std::shared_ptr<Connection> over;
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> rpc;
    grpc::ByteBuffer message;
    grpc::Status status;
  };

  void Open();
  void Connect();
  void Drop();
  /// The tag of an operation. `then` does not run once the stream is dropped.
  void* MakeTag(std::function<void(bool ok)> then);
  void Read();
  void Finish();
  void OnMessage(const etcdserverpb::WatchResponse& response);
  void OnCreated(const etcdserverpb::WatchResponse& response);
  /// Whether the server's history is not that of the watch: it is older, or of another cluster.
  bool IsBehind(const etcdserverpb::ResponseHeader& header) const;
  void UpdateHistory(const etcdserverpb::ResponseHeader& header);
  void OnCancelled(const etcdserverpb::WatchResponse& response);
  void OnLost();
  void Reopen(const std::string& why, Duration pause);
  void End(const Error& why);
  /// "etcd at 127.0.0.1:2379": the other end.
  std::string Server() const { return Concat("etcd at ", stream_->over->endpoint.ToString()); }

  Client* client_;  ///< Null after the end.
  const EtcdRange range_;
  int64_t next_;  ///< The revision to go on from; 0: the present one.
  EtcdWatcher& watcher_;
  std::shared_ptr<Stream> stream_;
  size_t attempts_ = 0;   ///< Since the last message.
  bool denied_ = false;   ///< Refused with the last stream's token.
  uint64_t cluster_ = 0;  ///< Of the last server that answered; 0: none.
  uint64_t term_ = 0;     ///< Of that server's raft; it only grows.
  std::unique_ptr<Timer> pause_;
  Lifetime lifetime_;  ///< Of one attempt to open a stream, and of that stream.
};

}  // namespace muster::etcd
