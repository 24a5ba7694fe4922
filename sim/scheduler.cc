#include "sim/scheduler.h"

#include <algorithm>
#include <utility>

namespace muster::sim {

void Scheduler::At(WorldTime when, std::function<void()> work) {
  events_.push_back({std::max(when, now_), ++made_, std::move(work)});
  std::ranges::push_heap(events_, std::greater<>{});
}

bool Scheduler::Step(WorldTime until) {
  if (events_.empty() || events_.front().when > until) return false;
  std::ranges::pop_heap(events_, std::greater<>{});
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.when;
  ++steps_;
  event.work();
  return true;
}

void Scheduler::RunUntil(WorldTime when) {
  while (Step(when)) {
  }
  now_ = std::max(now_, when);
}

}  // namespace muster::sim
