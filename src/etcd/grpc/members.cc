#include "etcd/grpc/members.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/prng.h"
#include "base/text.h"
#include "os/posix/process.h"

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

Result<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const EtcdAccess& access) {
  if (!access.tls) return grpc::InsecureChannelCredentials();
  if (access.cert_file.empty() != access.key_file.empty()) {
    return Error{Code::kInvalid, Concat("a client certificate of etcd's access needs its key, and "
                                        "the other way round; given is only ",
                                        access.cert_file, access.key_file)};
  }
  grpc::SslCredentialsOptions options;
  if (!access.ca_file.empty()) {
    MUSTER_TRY(options.pem_root_certs, ReadWhole(access.ca_file, "CA certificate"));
  }
  if (!access.cert_file.empty()) {
    MUSTER_TRY(options.pem_cert_chain, ReadWhole(access.cert_file, "client certificate"));
    MUSTER_TRY(options.pem_private_key, ReadWhole(access.key_file, "client key"));
  }
  return grpc::SslCredentials(options);
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

Connection::Connection(const Endpoint& to, std::shared_ptr<grpc::Channel> over)
    : endpoint(to),
      channel(std::move(over)),
      kv(etcdserverpb::KV::NewStub(channel)),
      watch(etcdserverpb::Watch::NewStub(channel)),
      lease(etcdserverpb::Lease::NewStub(channel)),
      auth(etcdserverpb::Auth::NewStub(channel)),
      maintenance(etcdserverpb::Maintenance::NewStub(channel)) {}

Members::Members(const EtcdAccess& access, std::shared_ptr<grpc::ChannelCredentials> credentials)
    : endpoints_(access.endpoints), credentials_(std::move(credentials)) {
  // Spreads clients over the members: processes differ in their id, clients in their address.
  index_ = Prng((uint64_t{ProcessId()} << 40) ^ reinterpret_cast<uintptr_t>(this))
               .Below(endpoints_.size());
}

Result<std::unique_ptr<Members>> Members::Open(const EtcdAccess& access) {
  if (access.endpoints.empty())
    return Error{Code::kInvalid, "no endpoint of etcd was given; at least one is needed"};
  MUSTER_TRY(auto credentials, Credentials(access));
  return std::unique_ptr<Members>(new Members(access, std::move(credentials)));
}

std::shared_ptr<Connection> Members::Current(Instant now) {
  if (!current_) {
    const Endpoint& endpoint = endpoints_[index_];
    current_ = std::make_shared<Connection>(
        endpoint, grpc::CreateCustomChannel(Concat("dns:///", endpoint.ToString()), credentials_,
                                            Arguments()));
    current_->alive_at = now;
  }
  return current_;
}

void Members::SwitchFrom(const Connection& connection) {
  if (current_.get() != &connection) return;
  current_.reset();
  index_ = (index_ + 1) % endpoints_.size();
}

}  // namespace muster::etcd
