#include "sim/scheduler.h"

#include <algorithm>
#include <utility>

namespace muster::sim {

void Scheduler::At(WorldTime when, std::function<void()> work) {
  size_t slot = works_.size();
  if (free_slots_.empty()) {
    works_.push_back(std::move(work));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    works_[slot] = std::move(work);
  }
  events_.push_back({std::max(when, now_), ++made_, slot});
  std::ranges::push_heap(events_, std::greater<>{});
}

bool Scheduler::Step(WorldTime until) {
  if (events_.empty() || events_.front().when > until) return false;
  std::ranges::pop_heap(events_, std::greater<>{});
  const Event event = events_.back();
  events_.pop_back();
  const std::function<void()> work = std::exchange(works_[event.slot], nullptr);
  free_slots_.push_back(event.slot);
  now_ = event.when;
  ++steps_;
  work();
  return true;
}

void Scheduler::RunUntil(WorldTime when) {
  while (Step(when)) {
  }
  now_ = std::max(now_, when);
}

}  // namespace muster::sim
