// The members of a cluster, of which one at a time is spoken to. Lives on the loop's thread.
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

/// One connection to one member. It is not repaired: who leaves it gets a new one, which tries at
/// once, where gRPC's own would first sit out its back-off.
struct Connection {
  Connection(const Endpoint& to, std::shared_ptr<grpc::Channel> over);

  const Endpoint endpoint;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<etcdserverpb::KV::Stub> kv;
  const std::unique_ptr<etcdserverpb::Watch::Stub> watch;
  const std::unique_ptr<etcdserverpb::Lease::Stub> lease;
  const std::unique_ptr<etcdserverpb::Auth::Stub> auth;
  const std::unique_ptr<etcdserverpb::Maintenance::Stub> maintenance;
  Instant heard{};       ///< When something last came from there.
  bool probing = false;  ///< It has been asked whether it lives.
};

class Members {
 public:
  /// kInvalid: no endpoints, or a file of the access cannot be read.
  static Result<std::unique_ptr<Members>> Open(const EtcdAccess& access);

  size_t count() const { return endpoints_.size(); }

  /// To whom to speak now; connects when first used.
  std::shared_ptr<Connection> Current(Instant now);
  /// The next one is spoken to, unless that is so already.
  void Leave(const Connection& connection);

 private:
  Members(const EtcdAccess& access, std::shared_ptr<grpc::ChannelCredentials> credentials);

  const std::vector<Endpoint> endpoints_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  size_t index_;
  std::shared_ptr<Connection> current_;
};

}  // namespace muster::etcd
