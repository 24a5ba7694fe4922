// From the public options to the port of etcd.
#pragma once

#include "etcd/etcd_port.h"
#include "muster/etcd.h"

namespace muster {

EtcdAccess AccessOf(const EtcdOptions& options);
/// Makes clients on gRPC. In the component muster::etcd.
EtcdConnector ConnectorTo(const EtcdOptions& options);

}  // namespace muster
