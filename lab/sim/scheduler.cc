#include "sim/scheduler.h"

#include <algorithm>
#include <functional>

namespace muster::sim {

uint32_t Scheduler::TakePlace() {
  if (free_places_.empty()) {
    const auto first = static_cast<uint32_t>(blocks_.size()) * kPlacesAtOnce;
    blocks_.push_back(std::make_unique<Place[]>(kPlacesAtOnce));
    for (uint32_t i = kPlacesAtOnce; i-- > 0;) free_places_.push_back(first + i);
  }
  const uint32_t place = free_places_.back();
  free_places_.pop_back();
  return place;
}

Scheduler::Planned Scheduler::At(WorldTime when, Work work) {
  const Event event{std::max(when, now_), ++made_, TakePlace()};
  Place& place = At(event.place);
  place.number = event.number;
  place.work = std::move(work);
  if (const Slice slice = SliceOf(event.when); slice > open_) {
    later_[slice].push_back(event);
  } else {
    sudden_.push_back(event);
    std::ranges::push_heap(sudden_, std::greater<>{});
  }
  return {event.number, event.place};
}

void Scheduler::Cancel(Planned planned) {
  if (planned.number == 0 || At(planned.place).number != planned.number) return;
  Place& place = At(planned.place);
  place.number = 0;
  place.work.Clear();
  free_places_.push_back(planned.place);
}

bool Scheduler::OpenNext(WorldTime until) {
  const auto next = later_.begin();
  if (next == later_.end() || next->first > SliceOf(until)) return false;
  open_ = next->first;
  due_ = std::move(next->second);
  next_ = 0;
  later_.erase(next);
  std::erase_if(due_,
                [this](const Event& event) { return At(event.place).number != event.number; });
  std::ranges::sort(due_, std::less<>{});
  return true;
}

const Scheduler::Event* Scheduler::Next(WorldTime until) {
  while (next_ == due_.size() && sudden_.empty()) {
    if (!OpenNext(until)) return nullptr;
  }
  const bool sudden = next_ == due_.size() || (!sudden_.empty() && sudden_.front() < due_[next_]);
  const Event& event = sudden ? sudden_.front() : due_[next_];
  return event.when > until ? nullptr : &event;
}

bool Scheduler::Step(WorldTime until) {
  while (const Event* next = Next(until)) {
    const Event event = *next;
    if (!sudden_.empty() && next == &sudden_.front()) {
      std::ranges::pop_heap(sudden_, std::greater<>{});
      sudden_.pop_back();
    } else {
      ++next_;
    }
    Place& place = At(event.place);
    if (place.number != event.number) continue;  // it was cancelled
    now_ = event.when;
    ++steps_;
    place.number = 0;  // what happens now cannot be cancelled
    place.work();
    place.work.Clear();
    free_places_.push_back(event.place);
    return true;
  }
  return false;
}

void Scheduler::RunUntil(WorldTime when) {
  while (Step(when)) {
  }
  now_ = std::max(now_, when);
}

}  // namespace muster::sim
