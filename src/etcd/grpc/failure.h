// What a failure of gRPC, or an error of etcd's, means for what was asked.
#pragma once

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "etcd/etcd_port.h"

namespace muster::etcd {

/// In order: how much is left to hope for.
enum class Outcome {
  kBusy,     ///< Nothing happened; the server wants to be asked later.
  kNothing,  ///< Nothing happened; another server may do better.
  kUnknown,  ///< It may have happened; another server may know.
  kStale,    ///< Nothing happened; our token is not, or no longer, good.
  kRefused,  ///< Nothing happened, and repeating will not help.
};

struct Verdict {
  Outcome outcome{};
  Error error;  ///< As the port wants it, if this is the end; names the endpoint.
  /// How sure it is that the server, or we, do not accept the other's certificate: up to
  /// kDistrustSure. Another server's may be better.
  size_t distrust = 0;
};
/// A server that refuses a client certificate just ends the connection: gRPC knows no more than
/// that. One which does so again and again means it.
inline constexpr size_t kDistrustSure = 4;

/// `reached`: the request was handed to a connection.
Verdict Judge(const grpc::Status& status, bool reached, const Endpoint& endpoint,
              const EtcdAccess& access);

/// Whether a call got as far as a connection, from what its context says of the peer: before that,
/// gRPC gives the name it was to look up.
inline bool IsReached(const std::string& peer) {
  return peer.starts_with("ipv4:") || peer.starts_with("ipv6:");
}

}  // namespace muster::etcd
