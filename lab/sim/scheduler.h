// Virtual time: what is to happen, in order. Nothing else moves the clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/time.h"
#include "sim/work.h"

namespace muster::sim {

/// The time of the world, since its beginning. Clocks of processes differ from it.
using WorldTime = Duration;

class Scheduler {
 public:
  WorldTime now() const { return now_; }
  uint64_t steps() const { return steps_; }

  /// Something that is planned; by default, nothing.
  struct Planned {
    uint64_t number = 0;
    uint32_t place = 0;
  };
  /// Ties happen in the order in which they were scheduled. What is past happens now.
  Planned At(WorldTime when, Work work);
  Planned After(Duration time, Work work) { return At(now_ + time, std::move(work)); }
  /// It does not happen. Nothing, if it has happened already.
  void Cancel(Planned planned);

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
    uint32_t place;
    bool operator>(const Event& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
    bool operator<(const Event& other) const { return other > *this; }
  };

  // Works stay where they are from planning to their time.
  struct Place {
    uint64_t number = 0;  ///< Of the event whose work it is; 0: free.
    Work work;
  };
  static constexpr uint32_t kPlacesAtOnce = 4096;
  Place& At(uint32_t place) { return blocks_[place / kPlacesAtOnce][place % kPlacesAtOnce]; }
  uint32_t TakePlace();

  /// Moves on to the next slice in which something is due, if one begins until then.
  bool OpenNext(WorldTime until);
  /// The next event; null if there is none until then.
  const Event* Next(WorldTime until);

  WorldTime now_{};
  uint64_t made_ = 0;
  uint64_t steps_ = 0;
  Slice open_ = 0;
  std::vector<Event> due_;     // of the open slice, in order
  size_t next_ = 0;            // of them
  std::vector<Event> sudden_;  // planned since it was opened: a heap, the next one first
  std::map<Slice, std::vector<Event>> later_;
  std::vector<std::unique_ptr<Place[]>> blocks_;
  std::vector<uint32_t> free_places_;
};

}  // namespace muster::sim
