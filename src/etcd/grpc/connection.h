// A connection to one member of a cluster. Lives on the loop's thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <memory>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "muster/etcd.h"

namespace muster::etcd {

/// After a failure it is replaced by a new one, which connects at once; gRPC's own reconnection
/// would first wait for its back-off.
struct Connection {
  const Endpoint endpoint;
  const std::shared_ptr<grpc::Channel> channel;
  Instant alive_at{};    ///< When the last message came.
  bool probing = false;  ///< A probe is under way.
  grpc::GenericStub stub{channel};
};

using Credentials = std::shared_ptr<grpc::ChannelCredentials>;

/// kInvalid: no endpoints, or a file of the access cannot be read.
Result<Credentials> CredentialsOf(const EtcdOptions& access);
std::shared_ptr<Connection> Connect(const Endpoint& endpoint, const Credentials& credentials,
                                    Instant now);

}  // namespace muster::etcd
