// The public functions that need gRPC.
#include <functional>
#include <memory>
#include <utility>

#include "etcd/calls.h"
#include "etcd/etcd_handler.h"
#include "etcd/etcd_store.h"
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

EtcdStore::EtcdStore(const EtcdOptions& options)
    : EtcdStore(Connect(options), options.prefix.empty() ? kDefaultPrefix : options.prefix,
                options.timeout) {}

std::shared_ptr<Store> OpenEtcdStore(const EtcdOptions& options) {
  return std::make_shared<EtcdStore>(options);
}

RendezvousHandlerPtr CreateEtcdHandler(EtcdRendezvousOptions options) {
  EtcdConnector connect = ConnectorTo(options.etcd);
  return std::make_unique<EtcdHandler>(std::move(options), std::move(connect), ThisProcess());
}

RendezvousHandlerPtr CreateEtcdHandler(const RendezvousParameters& parameters) {
  return CreateEtcdHandler(EtcdRendezvousOptions::From(parameters));
}

void EnableEtcd() {
  RendezvousHandlerPtr (*const create)(const RendezvousParameters&) = &CreateEtcdHandler;
  DefaultRendezvousRegistry().Supply("etcd", create);
  DefaultRendezvousRegistry().Supply("etcd-v2", create);
}

}  // namespace muster
