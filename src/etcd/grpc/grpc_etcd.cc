#include "etcd/grpc/grpc_etcd.h"

#include <grpc/support/log.h>

#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "etcd/grpc/client.h"
#include "etcd/grpc/convert.h"
#include "etcd/grpc/watch.h"

namespace muster {

namespace etcd {
namespace {

/// What a call is done with: `convert` makes the result of its Response.
template <typename Response, typename T, typename Convert>
auto Converted(Convert convert, std::function<void(Result<T>)> done) {
  return [convert, done = std::move(done)](Result<const grpc::ByteBuffer*> answer) {
    Response response;
    if (!answer) return done(answer.error());
    if (!FromBytes(**answer, response))
      return done(Error{Code::kTimeout, "etcd's response cannot be read"});
    done(convert(response));
  };
}

class GrpcEtcd final : public Etcd {
 public:
  GrpcEtcd(const EtcdOptions& access, Credentials credentials, Loop& loop)
      : client_(access, std::move(credentials), loop) {}

  void Commit(EtcdTransaction transaction, Duration patience,
              std::function<void(Result<EtcdAnswer>)> done) override {
    const auto convert = [](const etcdserverpb::TxnResponse& response) {
      return FromWire(response);
    };
    client_.Start({.method = "/etcdserverpb.KV/Txn",
                   .request = ToBytes(ToWire(transaction)),
                   .repeatable = OnlyReads(transaction),
                   .done = Converted<etcdserverpb::TxnResponse>(convert, std::move(done))},
                  patience);
  }

  void Grant(Duration ttl, Duration patience,
             std::function<void(Result<EtcdLease>)> done) override {
    etcdserverpb::LeaseGrantRequest request;
    // Whole seconds, rounded up.
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(ttl).count());
    const auto convert = [](const etcdserverpb::LeaseGrantResponse& response) {
      return EtcdLease{.id = response.id(), .ttl = std::chrono::seconds(response.ttl())};
    };
    client_.Start({.method = "/etcdserverpb.Lease/LeaseGrant",
                   .request = ToBytes(request),
                   .repeatable = true,  // an unused lease expires
                   .done = Converted<etcdserverpb::LeaseGrantResponse>(convert, std::move(done))},
                  patience);
  }

  // For etcd it is a stream. A stream with one request and one response is a call.
  void KeepAlive(int64_t lease, Duration patience,
                 std::function<void(Result<Duration>)> done) override {
    etcdserverpb::LeaseKeepAliveRequest request;
    request.set_id(lease);
    const auto convert =
        [lease, name = Describe()](
            const etcdserverpb::LeaseKeepAliveResponse& response) -> Result<Duration> {
      if (response.ttl() > 0) return Duration(std::chrono::seconds(response.ttl()));
      return Error{Code::kNotFound,
                   Concat(name, ": there is no lease ", lease, "; it has expired or was revoked")};
    };
    client_.Start(
        {.method = "/etcdserverpb.Lease/LeaseKeepAlive",
         .request = ToBytes(request),
         .repeatable = true,
         .hurried = true,  // leases last for seconds, and each holds a node's place
         .done = Converted<etcdserverpb::LeaseKeepAliveResponse>(convert, std::move(done))},
        patience);
  }

  void Revoke(int64_t lease, Duration patience, std::function<void(Status)> done) override {
    etcdserverpb::LeaseRevokeRequest request;
    request.set_id(lease);
    const auto on_end = [done = std::move(done)](Result<const grpc::ByteBuffer*> answer) {
      done(answer ? Ok() : Status(answer.error()));
    };
    client_.Start({.method = "/etcdserverpb.Lease/LeaseRevoke",
                   .request = ToBytes(request),
                   .repeatable = true,
                   .done = on_end},
                  patience);
  }

  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override {
    return std::make_unique<GrpcWatch>(client_, range, revision, watcher);
  }

  std::string Describe() const override { return client_.access().ToString(); }

 private:
  Client client_;
};

}  // namespace
}  // namespace etcd

Result<std::shared_ptr<Etcd>> ConnectEtcd(const EtcdOptions& access, Loop& loop) {
  MUSTER_TRY(etcd::Credentials credentials, etcd::CredentialsOf(access));
  // gRPC also writes its errors to stderr, which a library must not do in other people's programs.
  // Its own variable enables that.
  if (std::getenv("GRPC_VERBOSITY") == nullptr)
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  try {
    return std::shared_ptr<Etcd>(
        std::make_shared<etcd::GrpcEtcd>(access, std::move(credentials), loop));
  } catch (const std::system_error& error) {
    return Error{Code::kUnavailable,
                 Concat("no thread for a client of ", access.ToString(), ": ", error.what())};
  }
}

EtcdConnector ConnectorTo(const EtcdOptions& access) {
  return [access](Loop& loop) { return ConnectEtcd(access, loop); };
}

}  // namespace muster
