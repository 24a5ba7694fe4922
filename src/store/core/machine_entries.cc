// Storing values, and requests on many keys in pieces.
#include <algorithm>

#include "base/assert.h"
#include "store/core/machine.h"

namespace muster {

// --- Entries

void StoreMachine::Discard(Value value) {
  if (!value.is_large()) return;
  garbage_.bytes += value.size();
  garbage_.values.push_back(std::move(value));
}

bool StoreMachine::Garbage::DestroySome(size_t bytes_max) {
  // Many small values take time, too.
  constexpr size_t kLeastCost = 1024;
  size_t cost = 0;
  const auto destroy_last = [&](auto& of) {
    cost += std::max(of.back().DestroyLast(), kLeastCost);
    if (of.back().size() == 0) of.pop_back();
  };
  while (cost < bytes_max && !values.empty()) destroy_last(values);
  while (cost < bytes_max && !queues.empty()) {
    if (!queues.back().empty()) {
      destroy_last(queues.back());
    } else {
      queues.pop_back();
    }
  }
  bytes -= std::min(bytes, cost);
  return !empty();
}

Value StoreMachine::ValueOf(const Given& given) {
  if (given.is_small()) return Value(given.bytes);
  return Value(given.piece != nullptr ? *given.piece : MakePiece(given.bytes, account_));
}

size_t StoreMachine::CostOf(const Entry& entry) {
  return AllocatedBytes(sizeof(Entry)) + HeapBytes(entry.key) + entry.value.heap_bytes();
}

StoreMachine::Entry& StoreMachine::Link(std::unique_ptr<Entry> made) {
  Entry& entry = entries_.Insert(std::move(made));
  charge_.Add(CostOf(entry));
  return entry;
}

void StoreMachine::MakeThere(Entry& entry) {
  entry.is_there = true;
  ++keys_;
  if (entry.scope == nullptr) scopes_.Join(entry, entry.key, now_);
}

bool StoreMachine::Store(Entry* entry, const HashedKey& key, const Given& given,
                         Released& released) {
  // No client can be parked on a key that exists.
  return entry != nullptr ? Overwrite(*entry, given) : Create(key, given, released);
}

bool StoreMachine::Create(const HashedKey& key, const Given& given, Released& released) {
  if (!account_.HasRoomFor(AllocatedBytes(sizeof(Entry)) + key.text.size() +
                           (given.piece == nullptr ? given.bytes.size() : 0))) {
    return false;
  }
  Put(key, ValueOf(given), released);
  return true;
}

bool StoreMachine::Overwrite(Entry& entry, const Given& given) {
  if (entry.value.AssignInPlace(given.bytes)) return true;
  if (given.is_small() && !entry.value.is_large()) {
    const size_t before = entry.value.heap_bytes();
    if (given.bytes.size() > entry.value.small().capacity() &&
        !account_.HasRoomFor(given.bytes.size())) {
      return false;
    }
    entry.value.Assign(given.bytes);
    charge_.Change(before, entry.value.heap_bytes());
    return true;
  }
  if (!HasRoomFor(given)) return false;
  Value value = ValueOf(given);
  Replace(entry, value);
  Discard(std::move(value));
  return true;
}

void StoreMachine::Put(const HashedKey& key, Value value, Released& released) {
  Entry* entry = entries_.Find(key);
  if (entry == nullptr) {
    entry = &Link(std::make_unique<Entry>(key, std::move(value)));
  } else {
    Replace(*entry, value);
    Discard(std::move(value));
    if (entry->is_there) return;
  }
  MakeThere(*entry);
  waiters_.Created(key, released);
}

// `value` receives the old value.
void StoreMachine::Replace(Entry& entry, Value& value) {
  charge_.Change(entry.value.heap_bytes(), value.heap_bytes());
  std::swap(entry.value, value);
}

void StoreMachine::Wake(Entry& entry, Released& released) {
  if (std::exchange(entry.owes_wake, false)) waiters_.Created(entry.hashed(), released);
}

void StoreMachine::Erase(Entry& entry) {
  scopes_.Leave(entry);
  if (std::exchange(entry.is_there, false)) --keys_;
  entry.owes_wake = false;
  Value none;
  Replace(entry, none);
  Discard(std::move(none));
  ++entry.pins;
  Unpin(entry);
}

void StoreMachine::Unpin(Entry& entry) {
  if (--entry.pins > 0 || entry.is_there) return;
  scopes_.Leave(entry);
  charge_.Subtract(CostOf(entry));
  entries_.Remove(entry);
}

void StoreMachine::EraseMember(Scopes::Member& member) {
  if (member.kind == Scopes::Member::Kind::kEntry) return Erase(static_cast<Entry&>(member));
  Queues::Elements elements = queues_.Delete(member);
  garbage_.bytes += elements.size() * sizeof(Value);
  garbage_.queues.push_back(std::move(elements));
}

// --- Requests on many keys

bool StoreMachine::AreThere(std::span<const HashedKey> keys) const {
  for (const HashedKey& key : keys) {
    const bool is_there = Find(key) != nullptr || queues_.Length(key) > 0 ||
                          (!key.text.empty() && key.text == options_.reserved_key);
    if (!is_there) return false;
  }
  return true;
}

size_t StoreMachine::BytesCopiedFor(const Request& multi_get) const {
  size_t bytes = 0;
  for (size_t i = 0; i < multi_get.keys.size(); ++i) {
    const Entry* entry = Find(KeyAt(multi_get, i));
    if (entry != nullptr) bytes += entry->value.view().tail.size();
  }
  return bytes;
}

void StoreMachine::GiveUpReservation(ClientId client, Instant now, Released& released) {
  now_ = now;
  if (const auto freed = queues_.Unreserve(client)) OfferElements(freed->hashed(), released);
}

Reply StoreMachine::BeginWait(ClientId client) {
  if (IsParked(client)) return Reply::Refused(Reply::Why::kAlreadyParked);
  waiters_.Begin(client);
  return Reply::None();
}

Reply StoreMachine::AddToWait(ClientId client, std::span<const HashedKey> keys,
                              std::optional<HashedKey>& queue) {
  Missing missing{.queue = queue};
  for (const HashedKey& key : keys) Look(key, missing);
  queue = missing.queue;
  const Reply allowed = MayWaitFor(missing);
  if (allowed.kind != Reply::Kind::kRefused) waiters_.Add(client, missing.keys);
  return allowed;
}

void StoreMachine::Look(const HashedKey& key, Missing& missing) const {
  if (Find(key) != nullptr) return;
  if (!queues_.HasFree(key)) {
    missing.keys.push_back(key);
  } else if (!missing.queue) {
    missing.queue = key;
  }
}

Reply StoreMachine::MayWaitFor(const Missing& missing) const {
  if (waiters_.waited_keys() + missing.keys.size() > options_.waited_keys_max) {
    return Reply::Refused(Reply::Why::kTooMuch);
  }
  size_t bytes = 0;
  for (const HashedKey& key : missing.keys) bytes += Waiters::BytesFor(key);
  return account_.HasRoomFor(bytes) ? Reply::None() : Reply::Refused(Reply::Why::kNoRoom);
}

Reply StoreMachine::EndWait(ClientId client, const std::optional<HashedKey>& queue, Instant now) {
  const bool has_element = queue && queues_.HasFree(*queue);
  // Another client has taken the element that existed at the check.
  if (queue && !has_element && Find(*queue) == nullptr) waiters_.Add(client, {&*queue, 1});
  if (!waiters_.End(client)) return Reply::None();
  if (has_element) queues_.Reserve(client, *queue, now);
  return Reply::Of(Reply::Kind::kStopWaiting);
}

StoreMachine::StagedSet::~StagedSet() { MUSTER_ASSERT(settled_ == places_.size()); }

size_t StoreMachine::StagedSet::Add(const HashedKey& key, Value value) {
  made_.push_back(std::make_unique<Entry>(key, Value()));
  values_.push_back(std::move(value));
  return AllocatedBytes(sizeof(Entry)) + HeapBytes(made_.back()->key) + sizeof(Value) +
         values_.back().heap_bytes() + 2 * sizeof(void*);
}

bool StoreMachine::Prepare(StagedSet& set, size_t keys_max, Instant now) {
  now_ = now;
  if (set.places_.empty()) set.places_.reserve(set.made_.size());
  const size_t end = std::min(set.places_.size() + keys_max, set.made_.size());
  for (size_t i = set.places_.size(); i < end; ++i) {
    Entry* entry = entries_.Find(set.made_[i]->hashed());
    if (entry == nullptr) {
      entry = &Link(std::move(set.made_[i]));
      scopes_.Join(*entry, entry->key, now_);
    }
    ++entry->pins;
    set.places_.push_back(entry);
  }
  return end < set.made_.size();
}

void StoreMachine::Commit(StagedSet& set) {
  constexpr size_t kLookAhead = 8;  // entries that are prefetched
  MUSTER_ASSERT(set.places_.size() == set.made_.size() && set.settled_ == 0);
  for (size_t i = 0; i < set.places_.size(); ++i) {
    if (i + kLookAhead < set.places_.size()) {
      __builtin_prefetch(set.places_[i + kLookAhead], 1);
      __builtin_prefetch(reinterpret_cast<const char*>(set.places_[i + kLookAhead]) + 64, 1);
    }
    Entry& entry = *set.places_[i];
    Replace(entry, set.values_[i]);
    if (entry.is_there) continue;
    MakeThere(entry);
    entry.owes_wake = true;
  }
}

bool StoreMachine::Settle(StagedSet& set, size_t keys_max, Released& released) {
  const size_t end = std::min(set.settled_ + keys_max, set.places_.size());
  for (; set.settled_ < end; ++set.settled_) {
    Discard(std::move(set.values_[set.settled_]));  // the old value
    Wake(*set.places_[set.settled_], released);
    Unpin(*set.places_[set.settled_]);
  }
  return set.settled_ < set.places_.size();
}

}  // namespace muster
