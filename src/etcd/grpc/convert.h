// Converts between etcd's messages and the values of the port, and between messages and bytes.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "etcd.pb.h"
#include "etcd/etcd_port.h"

namespace muster::etcd {

etcdserverpb::TxnRequest ToWire(const EtcdTransaction& transaction);
EtcdAnswer FromWire(const etcdserverpb::TxnResponse& response);
std::vector<EtcdChange> FromWire(const etcdserverpb::WatchResponse& response);

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message);
/// False: these bytes are not such a message. No bytes are an empty one.
bool FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message);

}  // namespace muster::etcd
