// The members of a cluster, one of which is connected at a time. Lives on the loop's thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "etcd.grpc.pb.h"
#include "etcd/etcd_port.h"

namespace muster::etcd {

/// One connection to one member. After a failure it is replaced by a new one, which connects at
/// once; gRPC's own reconnection would first wait for its back-off.
struct Connection {
  Connection(const Endpoint& to, std::shared_ptr<grpc::Channel> over);

  const Endpoint endpoint;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<etcdserverpb::KV::Stub> kv;
  const std::unique_ptr<etcdserverpb::Watch::Stub> watch;
  const std::unique_ptr<etcdserverpb::Lease::Stub> lease;
  const std::unique_ptr<etcdserverpb::Auth::Stub> auth;
  const std::unique_ptr<etcdserverpb::Maintenance::Stub> maintenance;
  Instant alive_at{};    ///< When the last message came.
  bool probing = false;  ///< A probe is under way.
};

class Members {
 public:
  /// kInvalid: no endpoints, or a file of the access cannot be read.
  static Result<std::unique_ptr<Members>> Open(const EtcdAccess& access);

  size_t count() const { return endpoints_.size(); }

  /// The present connection; connects when first used.
  std::shared_ptr<Connection> Current(Instant now);
  /// Goes on to the next member, if this connection is the present one.
  void SwitchFrom(const Connection& connection);

 private:
  Members(const EtcdAccess& access, std::shared_ptr<grpc::ChannelCredentials> credentials);

  const std::vector<Endpoint> endpoints_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  size_t index_;
  std::shared_ptr<Connection> current_;
};

}  // namespace muster::etcd
