// What stands on a real cluster: the part of the public face that needs gRPC.
#include <functional>
#include <memory>
#include <utility>

#include "base/text.h"
#include "etcd/calls.h"
#include "etcd/connector.h"
#include "etcd/etcd_access.h"
#include "etcd/grpc/grpc_etcd.h"
#include "muster/dynamic_rendezvous.h"
#include "muster/etcd_rendezvous.h"
#include "muster/etcd_store.h"
#include "muster/etcd_v2_rendezvous.h"
#include "muster/rendezvous_error.h"
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

EtcdV2Rendezvous CreateEtcdV2Backend(const RendezvousParameters& parameters) {
  const EtcdOptions options = EtcdOptions::From(parameters);
  const std::string prefix(options.prefix.empty() ? EtcdV2RendezvousBackend::kDefaultPrefix
                                                  : options.prefix);
  try {
    std::shared_ptr<EtcdCalls> calls = Connect(options);
    EtcdV2Rendezvous made;
    made.store = std::make_shared<EtcdStore>(calls, Concat(prefix, "/store"), options.timeout);
    made.backend = std::make_unique<EtcdV2RendezvousBackend>(std::move(calls), prefix,
                                                             parameters.run_id, options.timeout);
    return made;
  } catch (const InterruptedError&) {
    throw;
  } catch (const DistError& error) {
    std::throw_with_nested(RendezvousConnectionError(
        Concat("the store of the rendezvous could not be reached: ", error.what())));
  }
}

RendezvousHandlerPtr CreateEtcdV2Handler(const RendezvousParameters& parameters) {
  EtcdV2Rendezvous made = CreateEtcdV2Backend(parameters);
  return CreateDynamicHandler(std::move(made.store), std::move(made.backend), parameters);
}

EtcdRendezvousHandler::EtcdRendezvousHandler(EtcdRendezvousOptions options)
    : EtcdRendezvousHandler(options, ConnectorTo(options.etcd), ThisProcess()) {}

RendezvousHandlerPtr CreateEtcdHandler(const RendezvousParameters& parameters) {
  return std::make_unique<EtcdRendezvousHandler>(EtcdRendezvousOptions::From(parameters));
}

void EnableEtcd() {
  DefaultRendezvousRegistry().Supply("etcd", &CreateEtcdHandler);
  DefaultRendezvousRegistry().Supply("etcd-v2", &CreateEtcdV2Handler);
}

}  // namespace muster
