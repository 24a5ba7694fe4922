#include "core/store/machine.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/assert.h"
#include "base/text.h"

namespace muster {

StoreMachine::StoreMachine(const StoreMachineOptions& options)
    : options_(options), queues_(options.reservation_max) {}

Reply StoreMachine::Step(ClientId client, const Request& request, Instant now, Released& released) {
  // Any request but the pop itself shows that the client did not come for the element kept for it.
  if (queues_.has_reservations() && request.op != Op::kQueuePop) {
    if (const auto freed = queues_.Unreserve(client)) OfferElements(*freed, now, released);
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
      return Wait(client, request, now);
    case Op::kCancelWait:
      return Cancel(client);
    case Op::kGetNumKeys:
      return Reply::Number(static_cast<int64_t>(entries_.size()));
    case Op::kDeleteKey: {
      const auto entry = entries_.find(request.key);
      if (entry == entries_.end()) return Reply::Number(0);
      entries_.erase(entry);
      return Reply::Number(1);
    }
    case Op::kAppend:
      return Append(request, released);
    case Op::kMultiGet:
      return MultiGet(request);
    case Op::kMultiSet:
      return MultiSet(request, released);
    case Op::kPing:
      return {.kind = Reply::Kind::kNonce, .number = request.number};
    case Op::kQueuePush:
      return QueuePush(request, now, released);
    case Op::kQueuePop:
      return QueuePop(client, request, now, released);
    case Op::kQueueLen:
      return Reply::Number(static_cast<int64_t>(queues_.Length(request.key)));
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
  Store(request.key, request.value, released);
  return Reply::None();
}

Reply StoreMachine::CompareSet(const Request& request, Released& released) {
  const auto entry = entries_.find(request.key);
  if (entry == entries_.end()) {
    // PyTorch answers a non-empty expectation on an absent key with the expectation itself.
    if (!request.expected.empty()) return Reply::Value(request.expected);
    Store(request.key, request.value, released);
    return Reply::Value(request.value);
  }
  if (entry->second != request.expected) return Reply::Value(entry->second);
  entry->second = request.value;
  return Reply::Value(entry->second);
}

Reply StoreMachine::Get(const Request& request) const {
  const auto entry = entries_.find(request.key);
  if (entry == entries_.end()) return {.kind = Reply::Kind::kValue, .number = 0};
  if (entry->second.size() > reply_limit_) return Reply::Refused(Reply::Why::kTooMuch);
  return {.kind = Reply::Kind::kValue, .number = 1, .value = entry->second};
}

Reply StoreMachine::Add(const Request& request, Released& released) {
  const auto entry = entries_.find(request.key);
  const Reply current = ReadCounter(entry);
  if (current.kind == Reply::Kind::kRefused) return current;
  // Wraps in two's complement; the addition of signed numbers would be undefined.
  const auto sum = static_cast<int64_t>(static_cast<uint64_t>(current.number) +
                                        static_cast<uint64_t>(request.number));
  StoreCounter(entry, request.key, sum, released);
  return Reply::Number(sum);
}

Reply StoreMachine::Check(const Request& request) const {
  const bool ready =
      std::all_of(request.keys.begin(), request.keys.end(), [&](std::string_view key) {
        return entries_.contains(key) || queues_.Length(key) > 0 ||
               (!key.empty() && key == options_.reserved_key);
      });
  return Reply::Of(ready ? Reply::Kind::kReady : Reply::Kind::kNotReady);
}

Reply StoreMachine::Wait(ClientId client, const Request& request, Instant now) {
  if (IsParked(client)) return Reply::Refused(Reply::Why::kAlreadyParked);
  std::vector<std::string_view> missing;
  std::optional<std::string_view> queue;  // the first key that only a queue satisfies
  for (const std::string_view key : request.keys) {
    if (entries_.contains(key)) continue;
    if (!queues_.HasFree(key)) {
      missing.push_back(key);
    } else if (!queue) {
      queue = key;
    }
  }
  if (missing.empty()) {
    if (queue) queues_.Reserve(client, *queue, now);
    return Reply::Of(Reply::Kind::kStopWaiting);
  }
  if (waiters_.waited_keys() + missing.size() > options_.waited_keys_max) {
    return Reply::Refused(Reply::Why::kTooMuch);
  }
  waiters_.Park(client, missing);
  return Reply::None();
}

Reply StoreMachine::Cancel(ClientId client) {
  waiters_.Remove(client);
  LeaveBarrier(client);
  return Reply::Of(Reply::Kind::kCancelled);
}

Reply StoreMachine::Append(const Request& request, Released& released) {
  const auto entry = entries_.find(request.key);
  if (entry == entries_.end()) {
    Store(request.key, request.value, released);
    return Reply::None();
  }
  if (entry->second.size() + request.value.size() > options_.reply_bytes_max) {
    return Reply::Refused(Reply::Why::kTooMuch);
  }
  entry->second += request.value;
  return Reply::None();
}

Reply StoreMachine::MultiGet(const Request& request) {
  reply_values_.clear();
  uint64_t bytes = 0;
  for (const std::string_view key : request.keys) {
    const auto entry = entries_.find(key);
    reply_values_.push_back(entry == entries_.end() ? std::string_view() : entry->second);
    bytes += reply_values_.back().size();
  }
  if (bytes > reply_limit_) return Reply::Refused(Reply::Why::kTooMuch);
  return {.kind = Reply::Kind::kValues, .values = reply_values_};
}

Reply StoreMachine::MultiSet(const Request& request, Released& released) {
  MUSTER_ASSERT(request.keys.size() == request.values.size());
  for (size_t i = 0; i < request.keys.size(); ++i) {
    Store(request.keys[i], request.values[i], released);
  }
  return Reply::None();
}

Reply StoreMachine::QueuePush(const Request& request, Instant now, Released& released) {
  queues_.Push(request.key, request.value);
  OfferElements(request.key, now, released);
  return Reply::None();
}

Reply StoreMachine::QueuePop(ClientId client, const Request& request, Instant now,
                             Released& released) {
  const auto length = static_cast<int64_t>(queues_.Length(request.key));
  // A reservation for another queue is given up, as by any other request.
  if (const auto held = queues_.ReservedBy(client); held && *held != request.key) {
    queues_.Unreserve(client);
    OfferElements(*held, now, released);
  }
  std::optional<std::string> element = queues_.Pop(client, request.key);
  if (!element) return {.kind = Reply::Kind::kPopped, .number = 0};
  reply_value_ = std::move(*element);
  return {.kind = Reply::Kind::kPopped, .number = length, .value = reply_value_};
}

Reply StoreMachine::ListKeys() {
  reply_values_.clear();
  reply_values_.reserve(entries_.size());
  uint64_t bytes = 0;
  for (const auto& [key, value] : entries_) {
    reply_values_.push_back(key);
    bytes += key.size();
  }
  if (bytes > reply_limit_) return Reply::Refused(Reply::Why::kTooMuch);
  return {.kind = Reply::Kind::kKeys, .values = reply_values_};
}

Reply StoreMachine::Barrier(ClientId client, const Request& request, Released& released) {
  if (IsParked(client)) return Reply::Refused(Reply::Why::kAlreadyParked);
  const auto entry = entries_.find(request.key);
  const Reply arrived = ReadCounter(entry);
  if (arrived.kind == Reply::Kind::kRefused) return arrived;
  const auto count = static_cast<int64_t>(static_cast<uint64_t>(arrived.number) + 1);
  StoreCounter(entry, request.key, count, released);
  if (count < request.number) {
    std::string key(request.key);
    Arrivals& arrivals = barriers_[key];
    const auto arrival = arrivals.insert(arrivals.end(), client);
    at_barrier_.emplace(client, BarrierPlace{std::move(key), arrival});
    return Reply::None();
  }
  if (const auto parked = barriers_.find(request.key); parked != barriers_.end()) {
    for (const ClientId other : parked->second) at_barrier_.erase(other);
    released.insert(released.end(), parked->second.begin(), parked->second.end());
    barriers_.erase(parked);
  }
  return Reply::Of(Reply::Kind::kStopWaiting);
}

void StoreMachine::Drop(ClientId client, Instant now, Released& released) {
  waiters_.Remove(client);
  LeaveBarrier(client);
  if (const auto freed = queues_.Unreserve(client)) OfferElements(*freed, now, released);
}

void StoreMachine::Expire(Instant now, Released& released) {
  while (const auto client = queues_.Expired(now)) {
    if (const auto freed = queues_.Unreserve(*client)) OfferElements(*freed, now, released);
  }
}

StoreMachineStats StoreMachine::Stats() const {
  return {.keys = entries_.size(),
          .queues = queues_.size(),
          .parked_clients = waiters_.clients() + at_barrier_.size(),
          .waited_keys = waiters_.waited_keys()};
}

void StoreMachine::Store(std::string_view key, std::string_view value, Released& released) {
  const auto entry = entries_.find(key);
  if (entry != entries_.end()) {
    entry->second = value;
    return;  // nobody can be parked on a key that exists
  }
  entries_.emplace(std::string(key), std::string(value));
  waiters_.Created(key, released);
}

Reply StoreMachine::ReadCounter(Entries::const_iterator entry) const {
  if (entry == entries_.end()) return Reply::Number(0);
  if (entry->second.empty() && options_.empty_counts_as_zero) return Reply::Number(0);
  const Result<int64_t> value = ParseCounter(entry->second);
  if (value) return Reply::Number(*value);
  return Reply::Refused(value.error().code == Code::kOutOfRange ? Reply::Why::kOutOfRange
                                                                : Reply::Why::kNotANumber);
}

void StoreMachine::StoreCounter(Entries::iterator entry, std::string_view key, int64_t value,
                                Released& released) {
  char digits[24];
  const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  if (entry != entries_.end()) {
    entry->second = text;
  } else {
    Store(key, text, released);
  }
}

void StoreMachine::OfferElements(std::string_view key, Instant now, Released& released) {
  while (queues_.HasFree(key) && waiters_.Offer(key, released)) {
    queues_.Reserve(released.back(), key, now);
  }
}

bool StoreMachine::IsParked(ClientId client) const {
  return waiters_.Contains(client) || at_barrier_.contains(client);
}

void StoreMachine::LeaveBarrier(ClientId client) {
  const auto found = at_barrier_.find(client);
  if (found == at_barrier_.end()) return;
  // The client stays counted: a barrier counts arrivals, and this one has arrived.
  const auto barrier = barriers_.find(found->second.key);
  barrier->second.erase(found->second.arrival);
  if (barrier->second.empty()) barriers_.erase(barrier);
  at_barrier_.erase(found);
}

}  // namespace muster
