// A client of etcd v3 on gRPC: the port Etcd in production.
//
// It uses one member at a time, and goes on to the next when that one fails, refuses a connection,
// has no leader, or is silent for about two seconds while an answer is awaited. Requests that can
// safely be repeated (reads, grants, keep-alives, revocations) are repeated until their patience is
// over; a transaction that writes is repeated only while it cannot have happened.
#pragma once

#include <memory>

#include "base/result.h"
#include "etcd/etcd_port.h"
#include "muster/etcd.h"

namespace muster {

/// Any thread; does not block, and connects when first used. The client belongs to `loop`.
/// kInvalid: no endpoints, or a file of the access cannot be read. kUnavailable: no thread.
Result<std::shared_ptr<Etcd>> ConnectEtcd(const EtcdOptions& access, Loop& loop);
EtcdConnector ConnectorTo(const EtcdOptions& access);

}  // namespace muster
