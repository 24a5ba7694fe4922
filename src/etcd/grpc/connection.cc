#include "etcd/grpc/connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "base/text.h"

namespace muster::etcd {

namespace {

// By default etcd closes connections that ping more often than every 5 s. Client::CheckSilence()
// finds a silent member sooner; pings are for idle connections.
constexpr int kPingMs = 6'000;
// Also the limit for unacknowledged data in the kernel.
constexpr int kPingAnswerMs = 2'000;
constexpr int kConnectMs = 1'500;
constexpr int kAnswerBytesMax = 256 * 1024 * 1024;

Result<std::string> ReadWhole(const std::string& path, std::string_view what) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty())
    return Error{Code::kInvalid, Concat("cannot read the ", what, " of etcd's access: ", path)};
  return text;
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  // Clients in one process do not share connections.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingAnswerMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // its pings count against the limit, too
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);  // in effect the time to connect
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  return arguments;
}

}  // namespace

Result<Credentials> CredentialsOf(const EtcdOptions& access) {
  if (access.endpoints.empty())
    return Error{Code::kInvalid, "no endpoint of etcd was given; at least one is needed"};
  if (!access.tls) return grpc::InsecureChannelCredentials();
  if (access.cert.empty() != access.key.empty()) {
    return Error{Code::kInvalid, Concat("a client certificate of etcd's access needs its key, and "
                                        "the other way round; given is only ",
                                        access.cert, access.key)};
  }
  grpc::SslCredentialsOptions options;
  if (!access.cacert.empty()) {
    MUSTER_TRY(options.pem_root_certs, ReadWhole(access.cacert, "CA certificate"));
  }
  if (!access.cert.empty()) {
    MUSTER_TRY(options.pem_cert_chain, ReadWhole(access.cert, "client certificate"));
    MUSTER_TRY(options.pem_private_key, ReadWhole(access.key, "client key"));
  }
  return grpc::SslCredentials(options);
}

std::shared_ptr<Connection> Connect(const Endpoint& endpoint, const Credentials& credentials,
                                    Instant now) {
  auto channel =
      grpc::CreateCustomChannel(Concat("dns:///", endpoint.ToString()), credentials, Arguments());
  return std::make_shared<Connection>(
      Connection{.endpoint = endpoint, .channel = std::move(channel), .alive_at = now});
}

}  // namespace muster::etcd
