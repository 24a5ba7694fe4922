// Functions that a process calls periodically, and how that ends.
#include "os/ports/system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/background.h"
#include "support/eventually.h"

namespace muster::test {

namespace {

/// Counts its calls and remembers whose thread makes them.
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

std::unique_ptr<Timer> CallEvery(milliseconds period, std::function<void()> tick) {
  return ThisProcess().CallEvery("heartbeat", period, std::move(tick));
}

std::string NameInsideTick(const std::string& name) {
  std::mutex mutex;
  std::string seen;
  std::atomic<bool> done{false};
  const auto timer = ThisProcess().CallEvery(name, milliseconds(1), [&] {
    char text[64] = {};
    pthread_getname_np(pthread_self(), text, sizeof text);
    const std::lock_guard lock(mutex);
    seen = text;
    done = true;
  });
  EXPECT_TRUE(EventuallyTrue([&] { return done.load(); }));
  const std::lock_guard lock(mutex);
  return seen;
}

}  // namespace

TEST(PeriodicCallTest, Rdzv178_DestructionEndsTheThread) {
  Ticks ticks;
  {
    const auto timer = CallEvery(milliseconds(1), ticks.Function());
    ASSERT_TRUE(ticks.Reach(3));
  }
  const int after = ticks.count;
  EXPECT_TRUE(ticks.ThreadIsGone());
  EXPECT_EQ(ticks.count, after);
}

TEST(PeriodicCallTest, Rdzv178_IntervalsAreNeverShorterThanRequested) {
  constexpr milliseconds kInterval{5};
  std::mutex mutex;
  std::vector<Clock::time_point> begins;
  std::vector<Clock::time_point> ends = {Clock::now()};
  auto timer = CallEvery(kInterval, [&] {
    const std::lock_guard lock(mutex);
    begins.push_back(Clock::now());
    ends.push_back(Clock::now());
  });
  EXPECT_TRUE(EventuallyTrue([&] {
    const std::lock_guard lock(mutex);
    return begins.size() >= 10;
  }));
  timer.reset();
  for (size_t i = 0; i < begins.size(); ++i) EXPECT_GE(begins[i] - ends[i], kInterval) << i;
}

TEST(PeriodicCallTest, DestructionDoesNotWaitForTheInterval) {
  const Stopwatch watch;
  CallEvery(std::chrono::milliseconds::max(), [] {}).reset();
  EXPECT_LT(watch.Elapsed(), kPatience);
}

TEST(PeriodicCallTest, DestructionWaitsForARunningCall) {
  std::latch inside(1);
  std::latch go_on(1);
  std::atomic<bool> finished{false};
  auto timer = CallEvery(milliseconds(0), [&] {
    if (finished) return;
    inside.count_down();
    go_on.wait();
    finished = true;
  });
  inside.wait();
  Background<bool> destroyed([&] {
    timer.reset();
    return finished.load();
  });
  EXPECT_TRUE(destroyed.UntilBlocked());
  EXPECT_FALSE(destroyed.IsDone());
  go_on.count_down();
  EXPECT_TRUE(destroyed.Result());
}

TEST(PeriodicCallTest, WhatTheCallThrowsDoesNotEndTheTimer) {
  std::atomic<int> calls{0};
  const auto timer = CallEvery(milliseconds(1), [&] {
    ++calls;
    if (calls % 2 == 1) throw std::runtime_error("a failed heartbeat");
    throw 42;  // not even an exception
  });
  EXPECT_TRUE(EventuallyTrue([&] { return calls >= 4; }));
}

TEST(PeriodicCallTest, TheThreadHasAName) {
  EXPECT_EQ(NameInsideTick("heartbeat"), "heartbeat");
  EXPECT_EQ(NameInsideTick("heartbeat of node 17"), "heartbeat of no");
  EXPECT_EQ(NameInsideTick("fourteen bytes\xc3\xbc"), "fourteen bytes");
}

}  // namespace muster::test
