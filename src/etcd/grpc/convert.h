// Converts between etcd's messages and the values of the port.
#pragma once

#include "etcd.pb.h"
#include "etcd/etcd_port.h"

namespace muster::etcd {

etcdserverpb::TxnRequest ToWire(const EtcdTransaction& transaction);
EtcdAnswer FromWire(const etcdserverpb::TxnResponse& response);
EtcdChange FromWire(const etcdserverpb::Event& event);

}  // namespace muster::etcd
