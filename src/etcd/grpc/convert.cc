#include "etcd/grpc/convert.h"

namespace muster::etcd {

namespace {

void Fill(etcdserverpb::Compare& wire, const EtcdCondition& condition) {
  wire.set_key(condition.key);
  switch (condition.kind) {
    case EtcdCondition::Kind::kCreatedAt:
      wire.set_target(etcdserverpb::Compare::CREATE);
      wire.set_create_revision(condition.revision);
      return;
    case EtcdCondition::Kind::kChangedAt:
      wire.set_target(etcdserverpb::Compare::MOD);
      wire.set_mod_revision(condition.revision);
      return;
    case EtcdCondition::Kind::kValueIs:
      wire.set_target(etcdserverpb::Compare::VALUE);
      wire.set_value(condition.value);
      return;
  }
}

void Fill(etcdserverpb::RequestOp& wire, const EtcdOperation& operation) {
  switch (operation.kind) {
    case EtcdOperation::Kind::kPut: {
      etcdserverpb::PutRequest& put = *wire.mutable_request_put();
      put.set_key(operation.range.begin);
      put.set_value(operation.value);
      put.set_lease(operation.lease);
      return;
    }
    case EtcdOperation::Kind::kGet: {
      etcdserverpb::RangeRequest& get = *wire.mutable_request_range();
      get.set_key(operation.range.begin);
      get.set_range_end(operation.range.end);
      get.set_limit(operation.range.limit);
      get.set_keys_only(operation.range.keys_only);
      return;
    }
    case EtcdOperation::Kind::kDelete: {
      etcdserverpb::DeleteRangeRequest& erase = *wire.mutable_request_delete_range();
      erase.set_key(operation.range.begin);
      erase.set_range_end(operation.range.end);
      return;
    }
  }
}

EtcdPair FromWire(const etcdserverpb::KeyValue& wire) {
  return {.key = wire.key(),
          .value = wire.value(),
          .created = wire.create_revision(),
          .changed = wire.mod_revision(),
          .lease = wire.lease()};
}

}  // namespace

etcdserverpb::TxnRequest ToWire(const EtcdTransaction& transaction) {
  etcdserverpb::TxnRequest wire;
  for (const EtcdCondition& each : transaction.conditions) Fill(*wire.add_compare(), each);
  for (const EtcdOperation& each : transaction.then) Fill(*wire.add_success(), each);
  for (const EtcdOperation& each : transaction.otherwise) Fill(*wire.add_failure(), each);
  return wire;
}

EtcdAnswer FromWire(const etcdserverpb::TxnResponse& response) {
  EtcdAnswer answer{.held = response.succeeded(), .revision = response.header().revision()};
  for (const etcdserverpb::ResponseOp& each : response.responses()) {
    EtcdAnswer::Result& result = answer.results.emplace_back();
    if (each.has_response_range()) {
      result.count = each.response_range().count();
      result.pairs.reserve(static_cast<size_t>(each.response_range().kvs_size()));
      for (const etcdserverpb::KeyValue& pair : each.response_range().kvs())
        result.pairs.push_back(FromWire(pair));
    } else if (each.has_response_delete_range()) {
      result.count = each.response_delete_range().deleted();
    }
  }
  return answer;
}

std::vector<EtcdChange> FromWire(const etcdserverpb::WatchResponse& response) {
  std::vector<EtcdChange> changes;
  changes.reserve(static_cast<size_t>(response.events_size()));
  for (const etcdserverpb::Event& event : response.events()) {
    changes.push_back(
        {.deleted = event.type() == etcdserverpb::Event::DELETE, .pair = FromWire(event.kv())});
  }
  return changes;
}

grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

bool FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  grpc::Slice slice;
  if (bytes.Valid() && !bytes.DumpToSingleSlice(&slice).ok()) return false;
  return message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

}  // namespace muster::etcd
