// From options of the public face to clients on gRPC.
#pragma once

#include "etcd/etcd_port.h"
#include "muster/etcd.h"

namespace muster {

EtcdConnector ConnectorTo(const EtcdOptions& options);

}  // namespace muster
