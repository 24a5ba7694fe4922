// The handler of the backend "etcd".
#pragma once

#include "etcd/etcd_port.h"
#include "muster/etcd_rendezvous.h"
#include "os/ports/system.h"

namespace muster {

/// The same, on a given connection. std::invalid_argument for invalid options.
RendezvousHandlerPtr CreateEtcdHandler(EtcdRendezvousOptions options, EtcdConnector connect,
                                       System& system);

}  // namespace muster
