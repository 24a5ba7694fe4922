#include "core/store/queues.h"

#include "base/assert.h"

namespace muster {

void Queues::Push(std::string_view key, std::string_view element) {
  auto queue = queues_.find(key);
  if (queue == queues_.end()) queue = queues_.emplace(std::string(key), Queue{}).first;
  queue->second.elements.emplace_back(element);
}

size_t Queues::Length(std::string_view key) const {
  const auto queue = queues_.find(key);
  return queue == queues_.end() ? 0 : queue->second.elements.size();
}

bool Queues::HasFree(std::string_view key) const {
  if (queues_.empty()) return false;
  const auto queue = queues_.find(key);
  return queue != queues_.end() && queue->second.elements.size() > queue->second.reserved;
}

void Queues::Reserve(ClientId client, std::string_view key, Instant now) {
  MUSTER_ASSERT(HasFree(key));
  MUSTER_ASSERT(!by_client_.contains(client));
  ++queues_.find(key)->second.reserved;
  const auto place =
      oldest_first_.insert(oldest_first_.end(), {client, std::string(key), now + reservation_max_});
  by_client_.emplace(client, place);
}

std::optional<std::string> Queues::ReservedBy(ClientId client) const {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return std::nullopt;
  return found->second->key;
}

std::optional<std::string> Queues::Unreserve(ClientId client) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return std::nullopt;
  std::string key = std::move(found->second->key);
  oldest_first_.erase(found->second);
  by_client_.erase(found);
  --queues_.find(key)->second.reserved;
  return key;
}

std::optional<ClientId> Queues::Expired(Instant now) const {
  if (oldest_first_.empty() || oldest_first_.front().until > now) return std::nullopt;
  return oldest_first_.front().client;
}

std::optional<std::string> Queues::Pop(ClientId client, std::string_view key) {
  if (const auto held = by_client_.find(client);
      held != by_client_.end() && held->second->key == key) {
    Unreserve(client);
  }
  if (!HasFree(key)) return std::nullopt;
  const auto queue = queues_.find(key);
  std::string element = std::move(queue->second.elements.front());
  queue->second.elements.pop_front();
  if (queue->second.elements.empty()) queues_.erase(queue);  // an empty queue does not exist
  return element;
}

}  // namespace muster
