#include "sim/side_by_side.h"

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>

#include "sim/crash_report.h"

namespace muster::sim {

namespace {

/// Lets one of several threads run at a time, each in its turn.
class Turns {
 public:
  explicit Turns(size_t count) {
    for (size_t i = 0; i < count; ++i) mine_.emplace_back(0);
    mine_.front().release();
  }
  void Await(size_t me) { mine_[me].acquire(); }
  void Pass(size_t me) { mine_[(me + 1) % mine_.size()].release(); }
  void PassAndAwait(size_t me) {
    Pass(me);
    Await(me);
  }

 private:
  std::deque<std::binary_semaphore> mine_;
};

}  // namespace

SideBySide PlaySideBySide(const std::vector<Plan>& plans,
                          const std::function<std::string(const Plan&)>& replay) noexcept {
  const auto began = std::chrono::steady_clock::now();
  SideBySide all{.outcomes = std::vector<RunOutcome>(plans.size()),
                 .turns = std::vector<int64_t>(plans.size())};
  Turns turns(plans.size());
  size_t over = 0;  // only the thread whose turn it is uses this, as all of the above
  const auto play = [&](size_t me) noexcept {
    turns.Await(me);
    SetCrashReport(replay(plans[me]));
    std::optional<World> world(std::in_place, plans[me]);
    world->on_turn = [&] {
      ++all.turns[me];
      turns.PassAndAwait(me);
    };
    all.outcomes[me] = world->Run();
    if (++over == plans.size())
      all.real_seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    // It stays until all are over: otherwise the last ones would have the cache to themselves.
    while (over < plans.size()) turns.PassAndAwait(me);
    world.reset();
    turns.Pass(me);
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < plans.size(); ++i) threads.emplace_back(play, i);
  threads.clear();
  return all;
}

}  // namespace muster::sim
