// Virtual time: what is to happen, in order. Nothing else moves the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/time.h"

namespace muster::sim {

/// The time of the world, since its beginning. Clocks of processes differ from it.
using WorldTime = Duration;

class Scheduler {
 public:
  WorldTime now() const { return now_; }
  uint64_t steps() const { return steps_; }

  /// Ties happen in the order in which they were scheduled. What is past happens now.
  void At(WorldTime when, std::function<void()> work);
  void After(Duration time, std::function<void()> work) { At(now_ + time, std::move(work)); }

  /// Everything that is due until then; the clock ends there.
  void RunUntil(WorldTime when);
  /// One event, if there is one until then.
  bool Step(WorldTime until);

 private:
  // Most of what a large world plans is seconds away. It waits unordered with what else is due in
  // the same slice of time, so that putting the next few in order takes no longer in a world of
  // 100,000 nodes.
  using Slice = int64_t;
  static Slice SliceOf(WorldTime when) { return when / 1ms; }

  struct Event {
    WorldTime when;
    uint64_t number;
    size_t slot;  ///< Of its work, which stays where it is while the heap is ordered.
    bool operator>(const Event& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  /// Moves on to the next slice in which something is due, if one begins until then.
  bool OpenNext(WorldTime until);

  WorldTime now_{};
  uint64_t made_ = 0;
  uint64_t steps_ = 0;
  Slice open_ = 0;
  std::vector<Event> events_;  // of the open slice: a heap, the next one first
  std::map<Slice, std::vector<Event>> later_;
  std::vector<std::function<void()>> works_;
  std::vector<size_t> free_slots_;
};

}  // namespace muster::sim
