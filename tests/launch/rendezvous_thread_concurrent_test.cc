// A backend that sends no events is queried once in each --monitor-interval, and requests of the
// agent do not wait for that.
#include "launch/rendezvous_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "muster/hash_store.h"
#include "os/ports/system.h"

namespace muster::test {

namespace {

using std::chrono::milliseconds;

class QueriedHandler final : public RendezvousHandler {
 public:
  std::string GetBackend() const override { return "c10d"; }
  std::string GetRunId() const override { return "job"; }
  RendezvousInfo NextRendezvous() override {
    return {.store = HashStore::Create(), .rank = 0, .world_size = 2, .round = 0};
  }
  bool IsClosed() override { return false; }
  using RendezvousHandler::SetClosed;
  void SetClosed(std::string_view) override { closed_ = true; }
  int64_t NumNodesWaiting() override { return 0; }
  bool Shutdown() override { return true; }
  std::optional<MembershipEvent> AwaitEvent(milliseconds time) override {
    EXPECT_EQ(time, milliseconds{0});
    const std::lock_guard lock(mutex_);
    ++queries_;
    changed_.notify_all();
    return std::nullopt;
  }

  bool closed() const { return closed_; }
  bool AwaitQueries(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, [&] { return queries_ >= count; });
  }
  int queries() {
    const std::lock_guard lock(mutex_);
    return queries_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int queries_ = 0;  // guarded by the mutex
  std::atomic<bool> closed_ = false;
};

RendezvousThreadOptions With(Duration interval) {
  return {.are_identical = true, .monitor_interval = interval};
}

TEST(RendezvousThreadTest, ABackendWithoutEventsIsQueriedOnceInEachInterval) {
  QueriedHandler handler;
  RendezvousThread rendezvous(With(1ms), handler, ThisProcess(), [](const AgentEvent&) {});
  rendezvous.Join(0);
  EXPECT_TRUE(handler.AwaitQueries(3));
}

TEST(RendezvousThreadTest, ARequestDoesNotWaitForTheInterval) {
  QueriedHandler handler;
  RendezvousThread rendezvous(With(1h), handler, ThisProcess(), [](const AgentEvent&) {});
  rendezvous.Join(0);
  rendezvous.Close("done");
  EXPECT_TRUE(rendezvous.IsDoneBy(ThisProcess().clock().Now() + 60s));
  EXPECT_TRUE(handler.closed());
  EXPECT_LE(handler.queries(), 1);
}

}  // namespace

}  // namespace muster::test
