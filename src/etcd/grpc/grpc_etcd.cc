#include "etcd/grpc/grpc_etcd.h"

#include <grpc/support/log.h>

#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "etcd/grpc/client.h"
#include "etcd/grpc/convert.h"
#include "etcd/grpc/lease_stream.h"
#include "etcd/grpc/watch_stream.h"

namespace muster {

namespace etcd {
namespace {

/// The parts of a client. The streams are destroyed before the client that they use.
struct Parts {
  Parts(const EtcdAccess& access, std::unique_ptr<Members> members, Loop& loop)
      : client(access, std::move(members), loop), watches(client), leases(client) {}

  Client client;
  WatchStream watches;
  LeaseStream leases;
};

class GrpcWatch final : public EtcdWatch {
 public:
  GrpcWatch(std::weak_ptr<Parts> parts, int64_t number)
      : parts_(std::move(parts)), number_(number) {}
  ~GrpcWatch() override {
    if (const auto parts = parts_.lock()) parts->watches.Remove(number_);
  }

 private:
  const std::weak_ptr<Parts> parts_;
  const int64_t number_;
};

class GrpcEtcd final : public Etcd {
 public:
  explicit GrpcEtcd(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}

  void Commit(EtcdTransaction transaction, Duration patience,
              std::function<void(Result<EtcdAnswer>)> done) override {
    const auto call =
        MakeCall(ToWire(transaction), &Connection::kv, &etcdserverpb::KV::Stub::PrepareAsyncTxn,
                 [done = std::move(done)](Result<const etcdserverpb::TxnResponse*> answer) {
                   if (!answer) return done(answer.error());
                   done(FromWire(**answer));
                 });
    call->repeatable = OnlyReads(transaction);
    parts_->client.Start(call, patience);
  }

  void Grant(Duration ttl, Duration patience,
             std::function<void(Result<EtcdLease>)> done) override {
    etcdserverpb::LeaseGrantRequest request;
    // Whole seconds, rounded up.
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(ttl).count());
    const auto call = MakeCall(
        std::move(request), &Connection::lease, &etcdserverpb::Lease::Stub::PrepareAsyncLeaseGrant,
        [done = std::move(done)](Result<const etcdserverpb::LeaseGrantResponse*> answer) {
          if (!answer) return done(answer.error());
          done(EtcdLease{.id = (*answer)->id(), .ttl = std::chrono::seconds((*answer)->ttl())});
        });
    call->repeatable = true;  // an unused lease expires
    parts_->client.Start(call, patience);
  }

  void KeepAlive(int64_t lease, Duration patience,
                 std::function<void(Result<Duration>)> done) override {
    parts_->leases.KeepAlive(lease, patience, std::move(done));
  }

  void Revoke(int64_t lease, Duration patience, std::function<void(Status)> done) override {
    etcdserverpb::LeaseRevokeRequest request;
    request.set_id(lease);
    const auto call = MakeCall(
        std::move(request), &Connection::lease, &etcdserverpb::Lease::Stub::PrepareAsyncLeaseRevoke,
        [done = std::move(done)](Result<const etcdserverpb::LeaseRevokeResponse*> answer) {
          done(answer ? Ok() : Status(answer.error()));
        });
    call->repeatable = true;
    parts_->client.Start(call, patience);
  }

  std::unique_ptr<EtcdWatch> Watch(const EtcdRange& range, int64_t revision,
                                   EtcdWatcher& watcher) override {
    return std::make_unique<GrpcWatch>(parts_, parts_->watches.Add(range, revision, watcher));
  }

  std::string Describe() const override { return parts_->client.access().ToString(); }

 private:
  const std::shared_ptr<Parts> parts_;
};

}  // namespace
}  // namespace etcd

Result<std::shared_ptr<Etcd>> ConnectEtcd(const EtcdAccess& access, Loop& loop) {
  MUSTER_TRY(std::unique_ptr<etcd::Members> members, etcd::Members::Open(access));
  // gRPC also writes its errors to stderr, which a library must not do in other people's programs.
  // Its own variable enables that.
  if (std::getenv("GRPC_VERBOSITY") == nullptr)
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  try {
    return std::shared_ptr<Etcd>(std::make_shared<etcd::GrpcEtcd>(
        std::make_shared<etcd::Parts>(access, std::move(members), loop)));
  } catch (const std::system_error& error) {
    return Error{Code::kUnavailable,
                 Concat("no thread for a client of ", access.ToString(), ": ", error.what())};
  }
}

}  // namespace muster
