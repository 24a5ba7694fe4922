// A client of etcd v3 on gRPC: the port Etcd in production.
//
// It uses one member at a time, and switches to the next one when it fails, refuses a connection,
// has no leader, or is silent for about two seconds while an answer is awaited. Requests that can
// safely be repeated (reads, grants, keep-alives, revocations) are repeated until their patience is
// over; a transaction that writes is repeated only while it cannot have happened.
#pragma once

#include "etcd/etcd_port.h"
#include "muster/etcd.h"

namespace muster {

/// std::invalid_argument for invalid options. The connector: any thread; does not block, and
/// connects when first used. kInvalid: a file of the access cannot be read. kUnavailable: no
/// thread.
EtcdConnector ConnectorTo(const EtcdOptions& access);

}  // namespace muster
