#include "sim/side_by_side.h"

#include <cstddef>
#include <deque>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>

#include "sim/last_words.h"

namespace muster::sim {

namespace {

/// Who of several threads runs: each in its turn.
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

std::vector<RunOutcome> PlaySideBySide(
    const std::vector<Plan>& plans,
    const std::function<std::string(const Plan&)>& replay) noexcept {
  std::vector<RunOutcome> outcomes(plans.size());
  Turns turns(plans.size());
  size_t over = 0;  // of whoever has the turn
  const auto play = [&](size_t me) noexcept {
    SetLastWords(replay(plans[me]));
    turns.Await(me);
    std::optional<World> world(std::in_place, plans[me]);
    world->on_turn = [&] { turns.PassAndAwait(me); };
    outcomes[me] = world->Run();
    // It stays until all are over, or the last ones would have the cache to themselves.
    ++over;
    while (over < plans.size()) turns.PassAndAwait(me);
    world.reset();
    turns.Pass(me);
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < plans.size(); ++i) threads.emplace_back(play, i);
  return threads.clear(), outcomes;
}

}  // namespace muster::sim
