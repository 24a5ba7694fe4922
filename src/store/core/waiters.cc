#include "store/core/waiters.h"

#include <iterator>
#include <memory>
#include <utility>

#include "base/assert.h"

namespace muster {

namespace {
// Places that Remove() clears at once.
constexpr size_t kClearedAtOnce = 64;
}  // namespace

size_t Waiters::BytesFor(const HashedKey& key) {
  return AllocatedBytes(sizeof(Line)) + AllocatedBytes(key.text.size() + 1) + sizeof(Stand) +
         AllocatedBytes(sizeof(Place) + 2 * sizeof(void*));
}

size_t Waiters::CostOf(const Line& line) {
  return AllocatedBytes(sizeof(Line)) + HeapBytes(line.key);
}

// Includes its entry in the table of waiters.
size_t Waiters::CostOf(const Waiter& waiter) {
  return AllocatedBytes(sizeof(Waiter)) + AllocatedBytes(4 * sizeof(void*)) +
         waiter.stands.capacity() * sizeof(Stand) +
         waiter.stands.size() * AllocatedBytes(sizeof(Place) + 2 * sizeof(void*));
}

Waiters::Line& Waiters::LineOf(const HashedKey& key) {
  if (Line* line = lines_.Find(key)) return *line;
  Line& line = lines_.Insert(std::make_unique<Line>(key));
  charge_.Add(CostOf(line));
  return line;
}

size_t Waiters::PlacesAt(const HashedKey& key) const {
  const Line* line = lines_.Find(key);
  return line == nullptr ? 0 : line->places.size();
}

void Waiters::Erase(Line& line) {
  charge_.Subtract(CostOf(line));
  lines_.Remove(line);
}

void Waiters::Park(ClientId client, std::span<const HashedKey> missing) {
  MUSTER_ASSERT(!missing.empty());
  Begin(client);
  Add(client, missing);
  waiters_.find(client)->second->held = false;
}

void Waiters::Begin(ClientId client) {
  MUSTER_ASSERT(!Contains(client));
  auto waiter = std::make_unique<Waiter>(client);
  charge_.Add(CostOf(*waiter));
  waiters_.emplace(client, std::move(waiter));
}

void Waiters::Add(ClientId client, std::span<const HashedKey> missing) {
  Waiter& waiter = *waiters_.find(client)->second;
  const size_t before = CostOf(waiter);
  for (const HashedKey& key : missing) {
    Line& line = LineOf(key);
    // The key was named before.
    if (!line.places.empty() && line.places.back().waiter == &waiter) continue;
    waiter.stands.reserve(waiter.stands.empty() ? missing.size() : 0);
    line.places.push_back({&waiter, waiter.stands.size()});
    waiter.stands.push_back({&line, std::prev(line.places.end())});
    ++waiter.missing;
    ++waited_keys_;
    ++places_;
  }
  charge_.Subtract(before);
  charge_.Add(CostOf(waiter));
}

bool Waiters::End(ClientId client) {
  const auto found = waiters_.find(client);
  Waiter& waiter = *found->second;
  waiter.held = false;
  if (waiter.missing > 0) return false;
  charge_.Subtract(CostOf(waiter));
  waiters_.erase(found);
  return true;
}

bool Waiters::Satisfy(const Place& place) {
  Waiter& waiter = *place.waiter;
  --places_;
  ++cleared_;
  waiter.stands[place.index].line = nullptr;
  if (waiter.gone) return false;
  --waited_keys_;
  return --waiter.missing == 0 && !waiter.held;
}

void Waiters::Finish(Waiter& waiter, Released& released) {
  const ClientId client = waiter.client;  // the erase below destroys the waiter
  released.push_back(client);
  charge_.Subtract(CostOf(waiter));
  waiters_.erase(client);
}

void Waiters::Created(const HashedKey& key, Released& released) {
  if (lines_.empty()) return;  // the common case of a store under load
  Line* found = lines_.Find(key);
  if (found == nullptr) return;
  charge_.Subtract(CostOf(*found));
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
  if (line->places.empty()) Erase(*line);
  return taken;
}

void Waiters::Vacate(const Stand& stand) {
  if (stand.line == nullptr) return;
  --places_;
  stand.line->places.erase(stand.place);
  if (stand.line->places.empty()) Erase(*stand.line);
}

bool Waiters::Remove(ClientId client) {
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
      Vacate(waiter.stands[waiter.tidied]);
    }
    charge_.Subtract(CostOf(waiter));
    gone_.pop_front();
  }
  return false;
}

}  // namespace muster
