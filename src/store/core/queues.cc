#include "store/core/queues.h"

#include "base/assert.h"

namespace muster {

size_t Queues::EmptyBytes(const HashedKey& key) {
  constexpr size_t kEmptyDeque = 640;  // its first block, and the table of blocks
  return AllocatedBytes(sizeof(Queue)) + AllocatedBytes(key.text.size() + 1) + kEmptyDeque;
}

size_t Queues::BytesFor(const HashedKey& key, size_t small_bytes) {
  return EmptyBytes(key) + sizeof(Value) + AllocatedBytes(small_bytes + 1);
}

Queues::Reservation::Reservation(ClientId by, const HashedKey& key, uint64_t number, Instant end,
                                 MemoryAccount& account)
    : client(by),
      name(key),
      serial(number),
      until(end),
      charge(account, AllocatedBytes(sizeof(Reservation) + 2 * sizeof(void*)) +
                          HeapBytes(name.text) + AllocatedBytes(4 * sizeof(void*))) {}

void Queues::Push(const HashedKey& key, Value element, Instant now) {
  Queue* queue = queues_.Find(key);
  if (queue == nullptr) {
    queue = &queues_.Insert(std::make_unique<Queue>(key, ++made_, account_));
    scopes_.Join(*queue, queue->key, now);
  }
  queue->elements.push_back(std::move(element));
  queue->charge.Add(CostOf(queue->elements.back()));
}

size_t Queues::Length(const HashedKey& key) const {
  const Queue* queue = queues_.Find(key);
  return queue == nullptr ? 0 : queue->elements.size();
}

bool Queues::HasFree(const HashedKey& key) const {
  if (queues_.empty()) return false;
  const Queue* queue = queues_.Find(key);
  return queue != nullptr && queue->elements.size() > queue->reserved;
}

void Queues::Reserve(ClientId client, const HashedKey& key, Instant now) {
  MUSTER_ASSERT(HasFree(key));
  MUSTER_ASSERT(!by_client_.contains(client));
  Queue& queue = *queues_.Find(key);
  ++queue.reserved;
  const auto place = oldest_first_.emplace(oldest_first_.end(), client, key, queue.serial,
                                           now + reservation_max_, account_);
  by_client_.emplace(client, place);
}

bool Queues::HasReserved(ClientId client, const HashedKey& key) const {
  const auto found = by_client_.find(client);
  return found != by_client_.end() && found->second->name.text == key.text;
}

std::optional<OwnedKey> Queues::Unreserve(ClientId client) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return std::nullopt;
  OwnedKey name = std::move(found->second->name);
  Queue* queue = queues_.Find(name.hashed());
  if (queue != nullptr && queue->serial == found->second->serial) --queue->reserved;
  oldest_first_.erase(found->second);
  by_client_.erase(found);
  return name;
}

std::optional<ClientId> Queues::Expired(Instant now) const {
  if (oldest_first_.empty() || oldest_first_.front().until > now) return std::nullopt;
  return oldest_first_.front().client;
}

std::optional<Value> Queues::Pop(ClientId client, const HashedKey& key) {
  if (HasReserved(client, key)) Unreserve(client);
  if (!HasFree(key)) return std::nullopt;
  Queue& queue = *queues_.Find(key);
  queue.charge.Subtract(CostOf(queue.elements.front()));
  Value element = std::move(queue.elements.front());
  queue.elements.pop_front();
  if (queue.elements.empty()) Delete(queue);  // a queue without elements does not exist
  return element;
}

Queues::Elements Queues::Delete(Scopes::Member& member) {
  Queue& queue = static_cast<Queue&>(member);
  scopes_.Leave(queue);
  return std::move(queues_.Remove(queue)->elements);
}

}  // namespace muster
