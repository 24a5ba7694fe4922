#include "sim/scheduler.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/work.h"

namespace muster::sim {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  Work Saying(std::string word) {
    return [this, word = std::move(word)] { said += word; };
  }

  Scheduler scheduler;
  std::string said;
};

TEST_F(SchedulerTest, WhatIsDueHappensInOrderAndTiesAsTheyWerePlanned) {
  scheduler.At(2s, Saying("e"));
  scheduler.At(1s + 200us, Saying("c"));
  scheduler.At(1s, Saying("a"));
  scheduler.At(1s + 200us, Saying("d"));
  scheduler.At(1s, Saying("b"));
  scheduler.RunUntil(1s + 500us);
  EXPECT_EQ(said, "abcd");
  EXPECT_EQ(scheduler.now(), 1s + 500us);
  scheduler.RunUntil(2s);
  EXPECT_EQ(said, "abcde");
}

TEST_F(SchedulerTest, WhatIsPlannedMeanwhileComesBetweenWhatWasPlannedBefore) {
  scheduler.At(1s, [this] {
    scheduler.After(0s, Saying("b"));
    scheduler.After(100us, Saying("d"));
    said += "a";
  });
  scheduler.At(1s + 50us, Saying("c"));
  scheduler.At(1s + 100us, Saying("x"));  // planned before "d", for the same moment
  scheduler.RunUntil(2s);
  EXPECT_EQ(said, "abcxd");
}

TEST_F(SchedulerTest, WhatIsCancelledDoesNotHappenAndIsLetGoAtOnce) {
  const auto held = std::make_shared<int>(1);
  scheduler.At(1s, Saying("a"));
  const Scheduler::Planned soon = scheduler.At(1s, [this, held] { said += "x"; });
  const Scheduler::Planned far = scheduler.At(1h, [this, held] { said += "y"; });
  EXPECT_EQ(held.use_count(), 3);
  scheduler.Cancel(soon);
  scheduler.Cancel(far);
  EXPECT_EQ(held.use_count(), 1);
  scheduler.RunUntil(2h);
  EXPECT_EQ(said, "a");
  EXPECT_EQ(scheduler.steps(), 1u);
}

TEST_F(SchedulerTest, WhatIsDueAtOnceCanBeCancelledByWhatHappensBefore) {
  Scheduler::Planned sudden;
  Scheduler::Planned due;
  scheduler.At(1s, [&] {
    sudden = scheduler.After(0s, Saying("x"));
    scheduler.Cancel(sudden);
    scheduler.Cancel(due);
  });
  due = scheduler.At(1s + 10us, Saying("y"));
  scheduler.At(1s + 20us, Saying("a"));
  scheduler.RunUntil(2s);
  EXPECT_EQ(said, "a");
}

TEST_F(SchedulerTest, WhatHasHappenedOrWasCancelledIsNotCancelledAgain) {
  scheduler.Cancel({});
  const Scheduler::Planned done = scheduler.At(1s, Saying("a"));
  scheduler.RunUntil(1s);
  const Scheduler::Planned never = scheduler.At(2s, Saying("x"));
  scheduler.Cancel(never);
  // These reuse the places of the earlier ones.
  scheduler.At(3s, Saying("b"));
  scheduler.At(3s, Saying("c"));
  scheduler.Cancel(done);
  scheduler.Cancel(never);
  scheduler.RunUntil(4s);
  EXPECT_EQ(said, "abc");
}

TEST_F(SchedulerTest, WhatHappensMayPlanMuchMore) {
  int count = 0;
  scheduler.At(1s, [&, kept = std::string(100, 'k')] {
    for (int i = 0; i < 10'000; ++i) scheduler.After(1ms, [&count] { ++count; });
    said = kept;  // still where it was
  });
  scheduler.RunUntil(2s);
  EXPECT_EQ(count, 10'000);
  EXPECT_EQ(said, std::string(100, 'k'));
}

TEST(WorkTest, OwnsWhatItCapturesWhereverItLies) {
  const auto held = std::make_shared<int>(0);
  {
    Work small = [held] { ++*held; };
    Work large = [held, room = std::array<char, 1000>()] { *held += 10 + room[0]; };
    Work only_mine = [mine = std::make_unique<int>(100), held] { *held += *mine; };
    for (Work* work : {&small, &large, &only_mine}) {
      Work moved = std::move(*work);
      EXPECT_FALSE(*work);
      moved();
      *work = std::move(moved);
      EXPECT_TRUE(*work);
    }
    EXPECT_EQ(held.use_count(), 4);
    small = std::move(large);  // what was there is destroyed
    EXPECT_EQ(held.use_count(), 3);
    small();
  }
  EXPECT_EQ(*held, 121);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace muster::sim
