// A function that is called periodically, and how that ends.
#include "store/periodic_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <filesystem>
#include <latch>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/background.h"
#include "support/eventually.h"

namespace muster::test {

namespace {

using std::chrono::hours;

/// Counts its calls and remembers their thread.
struct Ticks {
  std::atomic<int> count{0};
  std::atomic<int> thread{0};

  std::function<void()> Function() {
    return [this] {
      thread = KernelThreadId();
      ++count;
    };
  }
  bool Reach(int wanted) {
    return EventuallyTrue([this, wanted] { return count.load() >= wanted; });
  }
  bool ThreadIsGone() {
    return EventuallyTrue([this] {
      return !std::filesystem::exists("/proc/self/task/" + std::to_string(thread.load()));
    });
  }
};

std::string NameInsideTick(const std::string& name) {
  std::mutex mutex;
  std::string seen;
  std::atomic<bool> done{false};
  PeriodicTimer timer(milliseconds(1), [&] {
    char text[64] = {};
    pthread_getname_np(pthread_self(), text, sizeof text);
    const std::lock_guard lock(mutex);
    seen = text;
    done = true;
  });
  if (!name.empty()) timer.SetName(name);
  timer.Start();
  EXPECT_TRUE(EventuallyTrue([&] { return done.load(); }));
  timer.Cancel();
  return seen;
}

}  // namespace

TEST(PeriodicTimerTest, Rdzv178_ASecondStartFails) {
  PeriodicTimer timer(hours(1), [] {});
  timer.Start();
  EXPECT_THROW(timer.Start(), std::logic_error);
  timer.Cancel();
  EXPECT_THROW(timer.Start(), std::logic_error);
}

TEST(PeriodicTimerTest, Rdzv178_CancelIsIdempotentAndEndsTheThread) {
  Ticks ticks;
  PeriodicTimer timer(milliseconds(1), ticks.Function());
  timer.Start();
  ASSERT_TRUE(ticks.Reach(3));
  timer.Cancel();
  const int after = ticks.count;
  EXPECT_TRUE(ticks.ThreadIsGone());
  timer.Cancel();
  timer.Cancel();
  EXPECT_EQ(ticks.count, after);
}

TEST(PeriodicTimerTest, Rdzv178_DestructionEndsTheThread) {
  Ticks ticks;
  {
    PeriodicTimer timer(milliseconds(1), ticks.Function());
    timer.Start();
    ASSERT_TRUE(ticks.Reach(1));
  }
  const int after = ticks.count;
  EXPECT_TRUE(ticks.ThreadIsGone());
  EXPECT_EQ(ticks.count, after);
}

TEST(PeriodicTimerTest, Rdzv178_IntervalsAreNeverShorterThanRequested) {
  constexpr milliseconds kInterval{5};
  std::mutex mutex;
  std::vector<Clock::time_point> begins;
  std::vector<Clock::time_point> ends = {Clock::now()};
  PeriodicTimer timer(kInterval, [&] {
    const std::lock_guard lock(mutex);
    begins.push_back(Clock::now());
    ends.push_back(Clock::now());
  });
  timer.Start();
  EXPECT_TRUE(EventuallyTrue([&] {
    const std::lock_guard lock(mutex);
    return begins.size() >= 10;
  }));
  timer.Cancel();
  for (size_t i = 0; i < begins.size(); ++i) EXPECT_GE(begins[i] - ends[i], kInterval) << i;
}

TEST(PeriodicTimerTest, CancelBeforeStartChangesNothing) {
  Ticks ticks;
  PeriodicTimer timer(milliseconds(1), ticks.Function());
  timer.Cancel();
  timer.Start();
  EXPECT_TRUE(ticks.Reach(1));
}

TEST(PeriodicTimerTest, CancelDoesNotWaitForTheInterval) {
  const Stopwatch watch;
  PeriodicTimer timer(std::chrono::milliseconds::max(), [] {});
  timer.Start();
  timer.Cancel();
  EXPECT_LT(watch.Elapsed(), kPatience);
}

TEST(PeriodicTimerTest, CancelWaitsForARunningCall) {
  std::latch inside(1);
  std::latch go_on(1);
  std::atomic<bool> finished{false};
  PeriodicTimer timer(milliseconds(0), [&] {
    if (finished) return;
    inside.count_down();
    go_on.wait();
    finished = true;
  });
  timer.Start();
  inside.wait();
  Background<bool> cancelled([&] {
    timer.Cancel();
    return finished.load();
  });
  EXPECT_TRUE(cancelled.UntilBlocked());
  EXPECT_FALSE(cancelled.IsDone());
  go_on.count_down();
  EXPECT_TRUE(cancelled.Result());
}

TEST(PeriodicTimerTest, CancelFromInsideTheCallIsAnError) {
  std::atomic<int> refused{0};
  std::unique_ptr<PeriodicTimer> timer;
  timer = std::make_unique<PeriodicTimer>(milliseconds(1), [&] {
    try {
      timer->Cancel();
    } catch (const std::logic_error&) {
      ++refused;
    }
  });
  timer->Start();
  EXPECT_TRUE(EventuallyTrue([&] { return refused >= 2; }));  // and the timer continues
  timer->Cancel();
}

TEST(PeriodicTimerTest, DestructionFromInsideTheCallMakesItTheLast) {
  struct Owner {
    Ticks ticks;
    std::unique_ptr<PeriodicTimer> timer;
  };
  Owner owner;
  const auto tick = owner.ticks.Function();
  owner.timer = std::make_unique<PeriodicTimer>(milliseconds(0), [&owner, tick] {
    owner.timer.reset();
    tick();
  });
  owner.timer->Start();
  ASSERT_TRUE(owner.ticks.Reach(1));
  EXPECT_TRUE(owner.ticks.ThreadIsGone());
  EXPECT_EQ(owner.ticks.count, 1);
}

TEST(PeriodicTimerTest, WhatTheCallThrowsDoesNotEndTheTimer) {
  std::atomic<int> calls{0};
  PeriodicTimer timer(milliseconds(1), [&] {
    ++calls;
    if (calls % 2 == 1) throw std::runtime_error("a failed heartbeat");
    throw 42;  // not even an exception
  });
  timer.Start();
  EXPECT_TRUE(EventuallyTrue([&] { return calls >= 4; }));
}

TEST(PeriodicTimerTest, TheThreadHasAName) {
  EXPECT_EQ(NameInsideTick(""), "PeriodicTimer");
  EXPECT_EQ(NameInsideTick("heartbeat"), "heartbeat");
  EXPECT_EQ(NameInsideTick("heartbeat of node 17"), "heartbeat of no");
  EXPECT_EQ(NameInsideTick("fourteen bytes\xc3\xbc"), "fourteen bytes");
}

TEST(PeriodicTimerTest, ItIsNamedBeforeItStarts) {
  PeriodicTimer timer(hours(1), [] {});
  timer.Start();
  EXPECT_THROW(timer.SetName("late"), std::logic_error);
}

TEST(PeriodicTimerTest, ATimerThatCannotWorkIsRefused) {
  EXPECT_THROW(PeriodicTimer(milliseconds(-1), [] {}), std::invalid_argument);
  EXPECT_THROW(PeriodicTimer(milliseconds(1), nullptr), std::invalid_argument);
}

}  // namespace muster::test
