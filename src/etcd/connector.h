// From options of the public face to clients on gRPC.
#pragma once

#include "muster/etcd.h"
#include "ports/etcd.h"

namespace muster {

EtcdConnector ConnectorTo(const EtcdOptions& options);

}  // namespace muster
