#include "store/core/waiters.h"

#include <iterator>
#include <utility>

#include "base/assert.h"

namespace muster {

size_t Waiters::BytesFor(const HashedKey& key) {
  return AllocatedBytes(sizeof(Line)) + AllocatedBytes(key.text.size() + 1) + sizeof(Stand) +
         AllocatedBytes(sizeof(Place) + 2 * sizeof(void*));
}

// Includes its entry in the table of waiters.
size_t Waiters::CostOf(const Waiter& waiter) {
  return AllocatedBytes(sizeof(Waiter)) + AllocatedBytes(4 * sizeof(void*)) +
         waiter.stands.capacity() * sizeof(Stand) +
         waiter.stands.size() * AllocatedBytes(sizeof(Place) + 2 * sizeof(void*));
}

void Waiters::Park(ClientId client, std::span<const HashedKey> missing) {
  MUSTER_ASSERT(!missing.empty());
  Begin(client);
  Add(client, missing);
  End(client);
}

void Waiters::Begin(ClientId client) {
  MUSTER_ASSERT(!Contains(client));
  waiters_.emplace(client, std::make_unique<Waiter>(client, account_));
}

void Waiters::Add(ClientId client, std::span<const HashedKey> missing) {
  Waiter& waiter = *waiters_.find(client)->second;
  for (const HashedKey& key : missing) {
    Line* const known = lines_.Find(key);
    Line& line = known != nullptr ? *known : lines_.Insert(std::make_unique<Line>(key, account_));
    // The key was named before.
    if (!line.places.empty() && line.places.back().waiter == &waiter) continue;
    waiter.stands.reserve(waiter.stands.empty() ? missing.size() : 0);
    line.places.push_back({&waiter, waiter.stands.size()});
    waiter.stands.push_back({&line, std::prev(line.places.end())});
    ++waiter.missing;
    ++waited_keys_;
  }
  waiter.charge.Set(CostOf(waiter));
}

bool Waiters::End(ClientId client) {
  Waiter& waiter = *waiters_.find(client)->second;
  waiter.held = false;
  if (waiter.missing > 0) return false;
  Finish(waiter);
  return true;
}

bool Waiters::Satisfy(const Place& place) {
  Waiter& waiter = *place.waiter;
  waiter.stands[place.index].line = nullptr;
  if (waiter.gone) return false;
  --waited_keys_;
  return --waiter.missing == 0 && !waiter.held;
}

ClientId Waiters::Finish(Waiter& waiter) {
  const ClientId client = waiter.client;  // the erase below destroys the waiter
  waiters_.erase(client);
  return client;
}

void Waiters::Created(const HashedKey& key, Released& released) {
  if (lines_.empty()) return;  // the common case of a store under load
  Line* found = lines_.Find(key);
  if (found == nullptr) return;
  const std::unique_ptr<Line> line = lines_.Remove(*found);
  for (const Place& place : line->places) {
    if (Satisfy(place)) released.push_back(Finish(*place.waiter));
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
    if (taken) released.push_back(Finish(*place.waiter));
  }
  if (line->places.empty()) lines_.Remove(*line);
  return taken;
}

bool Waiters::Remove(ClientId client) {
  constexpr size_t kClearedAtOnce = 64;
  const auto found = waiters_.find(client);
  if (found == waiters_.end()) return false;
  std::unique_ptr<Waiter> waiter = std::move(found->second);
  waiters_.erase(found);
  waited_keys_ -= waiter->missing;
  waiter->gone = true;
  gone_.push_back(std::move(waiter));
  if (gone_.size() == 1) Tidy(kClearedAtOnce);
  return true;
}

bool Waiters::Tidy(size_t places_max) {
  while (!gone_.empty()) {
    Waiter& waiter = *gone_.front();
    for (; waiter.tidied < waiter.stands.size(); ++waiter.tidied) {
      if (places_max-- == 0) return true;
      const auto& [line, place] = waiter.stands[waiter.tidied];
      if (line == nullptr) continue;
      line->places.erase(place);
      if (line->places.empty()) lines_.Remove(*line);
    }
    gone_.pop_front();
  }
  return false;
}

}  // namespace muster
