// The public functions that need gRPC.
#include <memory>
#include <utility>

#include "etcd/calls.h"
#include "etcd/grpc/grpc_etcd.h"
#include "etcd/on_connection.h"
#include "muster/etcd_rendezvous.h"
#include "muster/etcd_store.h"
#include "os/ports/system.h"
#include "rendezvous/registry.h"
#include "store/throw.h"

namespace muster {

std::shared_ptr<Store> OpenEtcdStore(const EtcdOptions& options) {
  return OpenEtcdStore(ValueOrThrow(EtcdCalls::Open(ConnectorTo(options), ThisProcess())),
                       options.prefix.empty() ? "/muster/store" : options.prefix, options.timeout);
}

RendezvousHandlerPtr CreateEtcdHandler(EtcdRendezvousOptions options) {
  EtcdConnector connect = ConnectorTo(options.etcd);
  return CreateEtcdHandler(std::move(options), std::move(connect), ThisProcess());
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
