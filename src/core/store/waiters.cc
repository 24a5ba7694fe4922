#include "core/store/waiters.h"

#include <iterator>
#include <memory>
#include <utility>

#include "base/assert.h"

namespace muster {

void Waiters::Park(ClientId client, std::span<const HashedKey> missing) {
  MUSTER_ASSERT(!missing.empty());
  MUSTER_ASSERT(!Contains(client));
  auto waiter = std::make_unique<Waiter>();
  waiter->client = client;
  waiter->missing = missing.size();
  waiter->stands.reserve(missing.size());
  for (const HashedKey& key : missing) {
    Line* line = lines_.Find(key);
    if (line == nullptr) line = &lines_.Insert(std::make_unique<Line>(key));
    line->places.push_back({waiter.get(), waiter->stands.size()});
    waiter->stands.push_back({line, std::prev(line->places.end())});
  }
  waited_keys_ += missing.size();
  waiters_.emplace(client, std::move(waiter));
}

bool Waiters::Satisfy(const Place& place) {
  Waiter& waiter = *place.waiter;
  waiter.stands[place.index].line = nullptr;
  --waited_keys_;
  return --waiter.missing == 0;
}

void Waiters::Finish(Waiter& waiter, Released& released) {
  const ClientId client = waiter.client;  // the erase below destroys the waiter
  released.push_back(client);
  waiters_.erase(client);
}

void Waiters::Created(const HashedKey& key, Released& released) {
  if (lines_.empty()) return;  // the common case of a store under load: nobody waits
  Line* found = lines_.Find(key);
  if (found == nullptr) return;
  const std::unique_ptr<Line> line = lines_.Remove(*found);
  for (const Place& place : line->places) {
    if (Satisfy(place)) Finish(*place.waiter, released);
  }
}

bool Waiters::Offer(const HashedKey& key, Released& released) {
  Line* line = lines_.Find(key);
  if (line == nullptr) return false;
  bool taken = false;
  while (!line->places.empty() && !taken) {
    const Place place = line->places.front();
    line->places.pop_front();
    taken = Satisfy(place);
    if (taken) Finish(*place.waiter, released);
  }
  if (line->places.empty()) lines_.Remove(*line);
  return taken;
}

bool Waiters::Remove(ClientId client) {
  const auto found = waiters_.find(client);
  if (found == waiters_.end()) return false;
  for (const Stand& stand : found->second->stands) {
    if (stand.line == nullptr) continue;
    stand.line->places.erase(stand.place);
    --waited_keys_;
    if (stand.line->places.empty()) lines_.Remove(*stand.line);
  }
  waiters_.erase(found);
  return true;
}

}  // namespace muster
