// What a failure of gRPC or an error of etcd means for the request.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "muster/etcd.h"

namespace muster::etcd {

/// By how much a repetition can help.
enum class Outcome {
  kBusy,     ///< Nothing happened; repeat later.
  kNothing,  ///< Nothing happened; try another server.
  kUnknown,  ///< It may have happened.
  kStale,    ///< Nothing happened; the token is not valid any more.
  kRefused,  ///< Nothing happened, and repeating will not help.
};

struct Failure {
  Outcome outcome{};
  Error error;  ///< For the caller, if the request is not repeated; names the endpoint.
  /// How certain it is that one side does not accept the other's certificate: up to kDistrustSure.
  /// Another server's certificate may be accepted.
  size_t distrust = 0;
};
/// A server that refuses a client certificate only closes the connection, and gRPC sees nothing
/// else. So the refusal is certain after several times.
inline constexpr size_t kDistrustSure = 4;

/// `reached`: the request was passed to a connection.
Failure Classify(const grpc::Status& status, bool reached, const Endpoint& endpoint,
                 const EtcdOptions& access);

/// Whether a call was passed to a connection, from the peer in its context: until then that is the
/// name to be resolved.
inline bool IsReached(const std::string& peer) {
  return peer.starts_with("ipv4:") || peer.starts_with("ipv6:");
}

}  // namespace muster::etcd
