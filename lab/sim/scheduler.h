// Virtual time: planned events, in order. Nothing else moves the clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/time.h"
#include "sim/work.h"

namespace muster::sim {

/// The time of the world since its beginning. Clocks of processes differ from it.
using WorldTime = Duration;

class Scheduler {
 public:
  WorldTime now() const { return now_; }
  uint64_t steps() const { return steps_; }

  /// A planned event; by default, none.
  struct Planned {
    uint64_t number = 0;
    uint32_t place = 0;
  };
  /// Events of the same time happen in the order in which they were scheduled. An event in the past
  /// happens now.
  Planned At(WorldTime when, Work work);
  Planned After(Duration time, Work work) { return At(now_ + time, std::move(work)); }
  /// The event does not happen. No effect if it has happened already.
  void Cancel(Planned planned);

  /// Runs everything that is due until then, and sets the clock to it.
  void RunUntil(WorldTime when);
  /// Runs one event, if there is one until then.
  bool Step(WorldTime until);

 private:
  // Most events of a large world are seconds away. They wait unordered with the others of the same
  // slice of time, so ordering the next few takes no longer in a world of 100,000 nodes.
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

  // The work of an event stays in one place from planning to its time.
  struct Place {
    uint64_t number = 0;  ///< Of the event whose work it is; 0: free.
    Work work;
  };
  static constexpr uint32_t kPlacesAtOnce = 4096;
  Place& At(uint32_t place) { return blocks_[place / kPlacesAtOnce][place % kPlacesAtOnce]; }
  uint32_t TakePlace();

  /// Opens the next slice in which something is due, if one begins until then.
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
