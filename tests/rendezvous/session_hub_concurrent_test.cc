// Several loops share one coordinator: what each of them decides takes effect in that order.
#include "rendezvous/session/session_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <vector>

#include "support/background.h"
#include "support/fake_cell.h"

namespace muster::test {
namespace {

using ::testing::ElementsAre;
using Kind = wire::SessionRequest::Kind;

// A round is complete, and its only node is lost before the server's loop that has completed it
// reports so: its keys would be kept without end.
TEST(SessionHubTest, AScopeIsOpenedBeforeAnotherLoopDropsIt) {
  constexpr ClientId kNode{1};
  testing::FakeClock clock;
  SessionHub hub(
      {.has_store = true}, 2, clock, [](ClientId) { return size_t{0}; }, [](size_t) {});
  std::promise<void> is_opening;
  std::promise<void> was_dropped;
  std::mutex mutex;
  std::vector<bool> in_use;
  hub.ReportScopesTo([&](const ScopeChange& change) {
    if (change.in_use) {
      is_opening.set_value();
      was_dropped.get_future().wait_for(milliseconds(500));  // it must not happen
    }
    const std::lock_guard lock(mutex);
    in_use.push_back(change.in_use);
    if (!change.in_use) was_dropped.set_value();
  });
  const Pushes opened = hub.Handle(
      0, kNode,
      {.kind = Kind::kOpen,
       .hello = {.run_id = "run", .node = {.addr = "a", .pid = 1}, .settings = {.grace = 0ms}}});
  ASSERT_EQ(opened.size(), 1u);
  Background<bool> completing([&] {
    hub.Handle(0, kNode,
               {.kind = Kind::kJoin,
                .token = opened[0].token,
                .incarnation = opened[0].incarnation,
                .join_timeout = 60s});
    return true;
  });
  is_opening.get_future().wait();
  hub.Disconnect(1, kNode);
  hub.Tick(1);
  completing.Result();
  EXPECT_THAT(in_use, ElementsAre(true, false));
}

}  // namespace
}  // namespace muster::test
