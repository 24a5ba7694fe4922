#include "core/store/waiters.h"

#include "base/assert.h"

namespace muster {

void Waiters::Park(ClientId client, std::span<const std::string_view> missing) {
  MUSTER_ASSERT(!missing.empty());
  MUSTER_ASSERT(!Contains(client));
  auto waiter = std::make_unique<Waiter>();
  waiter->client = client;
  waiter->missing = missing.size();
  waiter->stands.reserve(missing.size());
  for (const std::string_view key : missing) {
    auto line = lines_.find(key);
    if (line == lines_.end()) line = lines_.emplace(std::string(key), Line{}).first;
    line->second.push_back({waiter.get(), waiter->stands.size()});
    waiter->stands.push_back({&*line, std::prev(line->second.end())});
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

void Waiters::Created(std::string_view key, Released& released) {
  if (lines_.empty()) return;  // the common case of a store under load: nobody waits
  const auto found = lines_.find(key);
  if (found == lines_.end()) return;
  const Line line = std::move(found->second);
  lines_.erase(found);
  for (const Place& place : line) {
    if (Satisfy(place)) Finish(*place.waiter, released);
  }
}

bool Waiters::Offer(std::string_view key, Released& released) {
  const auto found = lines_.find(key);
  if (found == lines_.end()) return false;
  Line& line = found->second;
  bool taken = false;
  while (!line.empty() && !taken) {
    const Place place = line.front();
    line.pop_front();
    taken = Satisfy(place);
    if (taken) Finish(*place.waiter, released);
  }
  if (line.empty()) lines_.erase(found);
  return taken;
}

bool Waiters::Remove(ClientId client) {
  const auto found = waiters_.find(client);
  if (found == waiters_.end()) return false;
  for (const Stand& stand : found->second->stands) {
    if (stand.line == nullptr) continue;
    stand.line->second.erase(stand.place);
    --waited_keys_;
    if (stand.line->second.empty()) lines_.erase(lines_.find(stand.line->first));
  }
  waiters_.erase(found);
  return true;
}

}  // namespace muster
