// etcd's messages and the port's values, into each other.
#pragma once

#include "etcd.pb.h"
#include "etcd/etcd_port.h"

namespace muster::etcd {

etcdserverpb::TxnRequest ToWire(const EtcdTransaction& transaction);
EtcdAnswer FromWire(const etcdserverpb::TxnResponse& response);
EtcdChange FromWire(const etcdserverpb::Event& event);

/// Whether it changes nothing, so that it may be repeated at will.
bool IsReadOnly(const EtcdTransaction& transaction);

}  // namespace muster::etcd
