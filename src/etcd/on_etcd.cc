// The public functions that need gRPC.
#include <functional>
#include <memory>
#include <utility>

#include "etcd/calls.h"
#include "etcd/etcd_access.h"
#include "etcd/grpc/grpc_etcd.h"
#include "muster/etcd_rendezvous.h"
#include "muster/etcd_store.h"
#include "os/ports/system.h"
#include "rendezvous/registry.h"
#include "store/throw.h"

namespace muster {

namespace {

std::shared_ptr<EtcdCalls> Connect(const EtcdOptions& options) {
  options.Validate();
  return ValueOrThrow(EtcdCalls::Open(ConnectorTo(options), ThisProcess()));
}

}  // namespace

EtcdConnector ConnectorTo(const EtcdOptions& options) {
  return [access = AccessOf(options)](Loop& loop) { return ConnectEtcd(access, loop); };
}

EtcdStore::EtcdStore(const EtcdOptions& options)
    : EtcdStore(Connect(options), options.prefix.empty() ? kDefaultPrefix : options.prefix,
                options.timeout) {}

EtcdRendezvousHandler::EtcdRendezvousHandler(EtcdRendezvousOptions options)
    : EtcdRendezvousHandler(options, ConnectorTo(options.etcd), ThisProcess()) {}

RendezvousHandlerPtr CreateEtcdHandler(const RendezvousParameters& parameters) {
  return std::make_unique<EtcdRendezvousHandler>(EtcdRendezvousOptions::From(parameters));
}

void EnableEtcd() {
  DefaultRendezvousRegistry().Supply("etcd", &CreateEtcdHandler);
  DefaultRendezvousRegistry().Supply("etcd-v2", &CreateEtcdHandler);
}

}  // namespace muster
