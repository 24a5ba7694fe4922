#include "store/core/machine.h"

#include <charconv>

#include "base/assert.h"
#include "base/text.h"

namespace muster {

namespace {

// As in PyTorch's server, a number may be the beginning of a text of any length.
Result<int64_t> ReadLargeCounter(const ValueView& value) {
  constexpr size_t kMost = 256;  // where a counter must have ended
  std::string beginning;
  for (const Piece& piece : value.pieces)
    beginning += piece->bytes().substr(0, kMost - beginning.size());
  beginning += value.tail.substr(0, kMost - beginning.size());
  if (beginning.find_first_not_of(" \t\n\v\f\r+-0123456789") == std::string::npos) {
    return Error{Code::kOutOfRange, "a number of more than 255 characters"};
  }
  return ParseCounter(beginning);
}

Reply Done(bool has_room) { return has_room ? Reply::None() : Reply::Refused(Reply::Why::kNoRoom); }

// Left-over places in lines that each step clears at most.
constexpr size_t kTidiedPerStep = 100;
}  // namespace

StoreMachine::StoreMachine(const StoreMachineOptions& options)
    : options_(options),
      hasher_(options.hash_secret),
      account_(options.account == nullptr ? own_account_ : *options.account),
      charge_(account_),
      scopes_(hasher_, options.stray_scope_kept, account_),
      entries_(account_),
      queues_(options.reservation_max, scopes_, account_),
      waiters_(account_),
      at_barrier_(account_) {}

Reply StoreMachine::Step(ClientId client, const Request& request, Instant now, Released& released) {
  now_ = now;
  if (waiters_.has_gone()) waiters_.Tidy(kTidiedPerStep);
  // Any request but the pop itself shows that the client does not want the element reserved for it.
  if (queues_.has_reservations() && request.op != Op::kQueuePop) {
    GiveUpReservation(client, now, released);
  }
  switch (request.op) {
    case Op::kSet:
      return Set(request, released);
    case Op::kCompareSet:
      return CompareSet(request, released);
    case Op::kGet:
      return Get(request);
    case Op::kAdd:
      return Add(request, released);
    case Op::kCheck:
      return Check(request);
    case Op::kWait:
      return Wait(client, request);
    case Op::kCancelWait:
      return Cancel(client);
    case Op::kGetNumKeys:
      return Reply::Number(static_cast<int64_t>(keys_));
    case Op::kDeleteKey:
      return DeleteKey(request, released);
    case Op::kAppend:
      return Append(request, released);
    case Op::kMultiGet:
      return MultiGet(request);
    case Op::kMultiSet:
      return MultiSet(request, released);
    case Op::kPing:
      return {.kind = Reply::Kind::kNonce, .number = request.number};
    case Op::kQueuePush:
      return QueuePush(request, released);
    case Op::kQueuePop:
      return QueuePop(client, request, released);
    case Op::kQueueLen:
      return Reply::Number(static_cast<int64_t>(queues_.Length(KeyOf(request))));
    case Op::kListKeys:
      return ListKeys();
    case Op::kBarrier:
      return Barrier(client, request, released);
    case Op::kValidate:
      break;
  }
  return Reply::Refused(Reply::Why::kMisplaced);
}

Reply StoreMachine::Set(const Request& request, Released& released) {
  const HashedKey key = KeyOf(request);
  return Done(Store(Find(key), key, {request.value, request.piece}, released));
}

Reply StoreMachine::DeleteKey(const Request& request, Released& released) {
  Entry* entry = Find(KeyOf(request));
  if (entry == nullptr) return Reply::Number(0);
  Wake(*entry, released);
  Erase(*entry);
  return Reply::Number(1);
}

Reply StoreMachine::CompareSet(const Request& request, Released& released) {
  const HashedKey key = KeyOf(request);
  const Given desired{request.value, request.piece};
  Entry* entry = Find(key);
  // PyTorch answers a non-empty expectation on an absent key with the expectation itself.
  if (entry == nullptr && !request.expected.empty()) return GiveValue(request.expected);
  if (entry != nullptr && !(entry->value.view() == request.expected)) {
    return GiveValue(entry->value.view());
  }
  if (request.value.size() > options_.reply_bytes_max) return Reply::Refused(Reply::Why::kTooMuch);
  if (!Store(entry, key, desired, released)) return Reply::Refused(Reply::Why::kNoRoom);
  return GiveValue(Find(key)->value.view());
}

Reply StoreMachine::GiveValue(const ValueView& value) const {
  if (value.size() > options_.reply_bytes_max) return Reply::Refused(Reply::Why::kTooMuch);
  return Reply::Value(value);
}

Reply StoreMachine::Get(const Request& request) const {
  const Entry* entry = Find(KeyOf(request));
  if (entry == nullptr) return {.kind = Reply::Kind::kValue, .number = 0};
  if (entry->value.size() > options_.reply_bytes_max) return Reply::Refused(Reply::Why::kTooMuch);
  return {.kind = Reply::Kind::kValue, .number = 1, .value = entry->value.view()};
}

Reply StoreMachine::Add(const Request& request, Released& released) {
  const HashedKey key = KeyOf(request);
  Entry* entry = Find(key);
  const Reply current = ReadCounter(entry);
  if (current.kind == Reply::Kind::kRefused) return current;
  // Wraps in two's complement; the addition of signed numbers would be undefined.
  const auto sum = static_cast<int64_t>(static_cast<uint64_t>(current.number) +
                                        static_cast<uint64_t>(request.number));
  if (!StoreCounter(entry, key, sum, released)) return Reply::Refused(Reply::Why::kNoRoom);
  return Reply::Number(sum);
}

Reply StoreMachine::Check(const Request& request) const {
  for (size_t i = 0; i < request.keys.size(); ++i) {
    const HashedKey key = KeyAt(request, i);
    if (!AreThere({&key, 1})) return Reply::Of(Reply::Kind::kNotReady);
  }
  return Reply::Of(Reply::Kind::kReady);
}

Reply StoreMachine::Wait(ClientId client, const Request& request) {
  if (IsParked(client)) return Reply::Refused(Reply::Why::kAlreadyParked);
  Missing missing;
  for (size_t i = 0; i < request.keys.size(); ++i) Look(KeyAt(request, i), missing);
  if (missing.keys.empty()) {
    if (missing.queue) queues_.Reserve(client, *missing.queue, now_);
    return Reply::Of(Reply::Kind::kStopWaiting);
  }
  const Reply allowed = MayWaitFor(missing);
  if (allowed.kind != Reply::Kind::kRefused) waiters_.Park(client, missing.keys);
  return allowed;
}

Reply StoreMachine::Cancel(ClientId client) {
  waiters_.Remove(client);
  // The client stays counted: a barrier counts arrivals, and this one has arrived.
  at_barrier_.Remove(client);
  return Reply::Of(Reply::Kind::kCancelled);
}

Reply StoreMachine::Append(const Request& request, Released& released) {
  const HashedKey key = KeyOf(request);
  Entry* entry = Find(key);
  const Given suffix{request.value, request.piece};
  if (entry == nullptr) return Done(Create(key, suffix, released));
  if (entry->value.size() + suffix.bytes.size() > options_.reply_bytes_max) {
    return Reply::Refused(Reply::Why::kTooMuch);
  }
  if (!HasRoomFor(suffix)) return Reply::Refused(Reply::Why::kNoRoom);
  const size_t before = entry->value.heap_bytes();
  if (suffix.is_small()) {
    entry->value.Append(suffix.bytes, account_);
  } else {
    entry->value.Append(suffix.piece != nullptr ? *suffix.piece : MakePiece(suffix.bytes, account_),
                        account_);
  }
  charge_.Change(before, entry->value.heap_bytes());
  return Reply::None();
}

Reply StoreMachine::MultiGet(const Request& request) {
  reply_values_.clear();
  uint64_t bytes = 0;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    const Entry* entry = Find(KeyAt(request, i));
    if (entry != nullptr) bytes += entry->value.size();
    reply_values_.push_back(entry == nullptr ? ValueView() : entry->value.view());
  }
  if (bytes > options_.reply_bytes_max) return Reply::Refused(Reply::Why::kTooMuch);
  return {.kind = Reply::Kind::kValues, .values = reply_values_};
}

Reply StoreMachine::MultiSet(const Request& request, Released& released) {
  MUSTER_ASSERT(request.keys.size() == request.values.size());
  size_t bytes = 0;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    bytes += sizeof(Entry) + request.keys[i].size() + request.values[i].size();
  }
  if (!account_.HasRoomFor(bytes)) return Reply::Refused(Reply::Why::kNoRoom);
  for (size_t i = 0; i < request.keys.size(); ++i) {
    Put(KeyAt(request, i), ValueOf({request.values[i]}), released);
  }
  return Reply::None();
}

Reply StoreMachine::QueuePush(const Request& request, Released& released) {
  const HashedKey key = KeyOf(request);
  const Given element{request.value, request.piece};
  const size_t small_bytes = element.is_small() ? element.bytes.size() : 0;
  if (!account_.HasRoomFor(Queues::BytesFor(key, small_bytes)) || !HasRoomFor(element)) {
    return Reply::Refused(Reply::Why::kNoRoom);
  }
  queues_.Push(key, ValueOf(element), now_);
  OfferElements(key, released);
  return Reply::None();
}

Reply StoreMachine::QueuePop(ClientId client, const Request& request, Released& released) {
  const HashedKey key = KeyOf(request);
  const auto length = static_cast<int64_t>(queues_.Length(key));
  // A reservation for another queue ends, as it does with any other request.
  if (!queues_.HasReserved(client, key)) GiveUpReservation(client, now_, released);
  std::optional<Value> element = queues_.Pop(client, key);
  if (!element) return {.kind = Reply::Kind::kPopped, .number = 0};
  Discard(std::exchange(reply_value_, std::move(*element)));
  return {.kind = Reply::Kind::kPopped, .number = length, .value = reply_value_.view()};
}

Reply StoreMachine::ListKeys() {
  reply_values_.clear();
  reply_values_.reserve(keys_);
  uint64_t bytes = 0;
  for (size_t shard = 0; shard < kShards; ++shard) {
    ForEachKey(shard, [&](const ValueView& key) {
      reply_values_.push_back(key);
      bytes += key.tail.size();
    });
  }
  if (bytes > options_.reply_bytes_max) return Reply::Refused(Reply::Why::kTooMuch);
  return {.kind = Reply::Kind::kKeys, .values = reply_values_};
}

Reply StoreMachine::Barrier(ClientId client, const Request& request, Released& released) {
  if (IsParked(client)) return Reply::Refused(Reply::Why::kAlreadyParked);
  const HashedKey key = KeyOf(request);
  Entry* entry = Find(key);
  const Reply arrived = ReadCounter(entry);
  if (arrived.kind == Reply::Kind::kRefused) return arrived;
  const auto count = static_cast<int64_t>(static_cast<uint64_t>(arrived.number) + 1);
  const bool waits = count < request.number;
  if ((waits && !account_.HasRoomFor(Waiters::BytesFor(key))) ||
      !StoreCounter(entry, key, count, released)) {
    return Reply::Refused(Reply::Why::kNoRoom);
  }
  if (waits) {
    at_barrier_.Park(client, {&key, 1});
    return Reply::None();
  }
  at_barrier_.Created(key, released);
  return Reply::Of(Reply::Kind::kStopWaiting);
}

void StoreMachine::Drop(ClientId client, Instant now, Released& released) {
  Cancel(client);
  GiveUpReservation(client, now, released);
}

bool StoreMachine::Expire(Instant now, Released& released) {
  while (const auto client = queues_.Expired(now)) GiveUpReservation(*client, now, released);
  if (waiters_.Tidy(kKeysPerPiece)) return true;
  for (size_t i = 0; i < kKeysPerPiece; ++i) {
    Scopes::Member* member = scopes_.Overdue(now);
    if (member == nullptr) return false;
    EraseMember(*member);
  }
  return scopes_.Overdue(now) != nullptr;
}

bool StoreMachine::DropScope(std::string_view scope, size_t keys_max) {
  for (size_t i = 0; i < keys_max; ++i) {
    Scopes::Member* member = scopes_.AnyOf(scope);
    if (member == nullptr) break;
    EraseMember(*member);
  }
  if (scopes_.AnyOf(scope) != nullptr) return true;
  scopes_.Close(scope);
  return false;
}

StoreMachineStats StoreMachine::Stats() const {
  return {.keys = keys_,
          .queues = queues_.size(),
          .parked_clients = waiters_.clients() + at_barrier_.clients(),
          .waited_keys = waiters_.waited_keys(),
          .scopes = scopes_.size()};
}

Reply StoreMachine::ReadCounter(const Entry* entry) const {
  if (entry == nullptr) return Reply::Number(0);
  if (entry->value.size() == 0 && options_.empty_counts_as_zero) return Reply::Number(0);
  const Result<int64_t> value = entry->value.is_large() ? ReadLargeCounter(entry->value.view())
                                                        : ParseCounter(entry->value.small());
  if (value) return Reply::Number(*value);
  return Reply::Refused(value.error().code == Code::kOutOfRange ? Reply::Why::kOutOfRange
                                                                : Reply::Why::kNotANumber);
}

bool StoreMachine::StoreCounter(Entry* entry, const HashedKey& key, int64_t value,
                                Released& released) {
  char digits[24];
  const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const Given text{{digits, static_cast<size_t>(end - digits)}};
  return Store(entry, key, text, released);
}

void StoreMachine::OfferElements(const HashedKey& key, Released& released) {
  while (queues_.HasFree(key) && waiters_.Offer(key, released)) {
    queues_.Reserve(released.back(), key, now_);
  }
}

}  // namespace muster
