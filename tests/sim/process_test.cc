#include "sim/process.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace muster::sim {
namespace {

class ProcessTest : public testing::Test {
 protected:
  Scheduler scheduler;
  Trace trace;
  Network network{scheduler, {}, 1, trace};
  SimProcess process{scheduler, network, network.AddHost("10.1.0.0"), 1, {}, 1};
};

TEST_F(ProcessTest, APausedProcessIsLateForWhatWasDueMeanwhile) {
  WorldTime woken{};
  process.Start([this, &woken] {
    process.clock().SleepUntil(process.Now() + 1s);
    woken = scheduler.now();
  });
  scheduler.RunUntil(400ms);
  process.Pause();
  scheduler.RunUntil(5s);
  process.Resume();
  scheduler.RunUntil(10s);
  EXPECT_EQ(woken, 5s);
}

TEST_F(ProcessTest, WhatWasLeftOfATimerIsLeftAfterASuspend) {
  WorldTime woken{};
  process.Start([this, &woken] {
    process.clock().SleepUntil(process.Now() + 1s);
    woken = scheduler.now();
  });
  scheduler.RunUntil(400ms);
  process.Suspend();
  scheduler.RunUntil(5s);
  process.Resume();
  EXPECT_EQ(process.Now(), Instant{5s}) << "its clock continued";
  EXPECT_EQ(process.suspended_for(), 4'600ms);
  scheduler.RunUntil(10s);
  EXPECT_EQ(woken, 5'600ms);
}

TEST_F(ProcessTest, ATimerThatIsDueAfterASuspendIsLaterByAsMuch) {
  std::vector<WorldTime> ticks;
  SimLoop loop(process);
  const std::unique_ptr<Timer> timer = loop.Every(2s, [&] { ticks.push_back(scheduler.now()); });
  scheduler.RunUntil(500ms);
  process.Suspend();
  scheduler.RunUntil(1s);
  process.Resume();
  scheduler.RunUntil(5s);
  EXPECT_EQ(ticks, (std::vector<WorldTime>{2'500ms, 4'500ms}));
}

TEST_F(ProcessTest, AClockThatLeapsShowsMoreAtOnce) {
  process.Suspend();
  process.LeapClock(60s);
  scheduler.RunUntil(1s);
  process.Resume();
  EXPECT_EQ(process.Now(), Instant{61s});
}

}  // namespace
}  // namespace muster::sim
