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
  const Event event{std::max(when, now_), ++made_, slot};
  const Slice slice = SliceOf(event.when);
  if (slice > open_) {
    later_[slice].push_back(event);
    return;
  }
  events_.push_back(event);
  std::ranges::push_heap(events_, std::greater<>{});
}

bool Scheduler::OpenNext(WorldTime until) {
  const auto next = later_.begin();
  if (next == later_.end() || next->first > SliceOf(until)) return false;
  open_ = next->first;
  events_ = std::move(next->second);
  later_.erase(next);
  std::ranges::make_heap(events_, std::greater<>{});
  return true;
}

bool Scheduler::Step(WorldTime until) {
  if (events_.empty() && !OpenNext(until)) return false;
  if (events_.front().when > until) return false;
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
