#include "sim/crash_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/assert.h"
#include "base/text.h"
#include "sim/campaign.h"

namespace muster::sim {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class LastWordsTest : public testing::Test {
 protected:
  // The child that dies is a new process: it does not have this one's threads.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(LastWordsTest, AFailedAssertionIsFollowedByThem) {
  const bool holds = false;
  EXPECT_DEATH(
      {
        InstallCrashReport();
        SetCrashReport("repeat 7");
        MUSTER_ASSERT(holds);
      },
      "holds does not hold(.|\n)*repeat 7");
}

TEST_F(LastWordsTest, AnUncaughtExceptionIsFollowedByThem) {
  EXPECT_DEATH(
      {
        InstallCrashReport();
        std::thread([] {
          SetCrashReport("repeat 7");
          throw std::runtime_error("thrown");
        }).join();
      },
      AllOf(HasSubstr("thrown"), HasSubstr("repeat 7")));
}

TEST_F(LastWordsTest, ABadAccessIsFollowedByThem) {
  EXPECT_DEATH(
      {
        InstallCrashReport();
        SetCrashReport("repeat 7");
        int* volatile nowhere = nullptr;
        *nowhere = 1;
      },
      "repeat 7");
}

// Frames of a page each; the sum prevents the compiler from merging them.
int Deeper(int depth) {  // NOLINT(misc-no-recursion): that is the point
  volatile char frame[4096] = {};
  frame[depth % 4096] = 1;
  return depth == 0 ? 0 : Deeper(depth + 1) + frame[0];
}

TEST_F(LastWordsTest, AStackThatOverflowsIsFollowedByThem) {
  EXPECT_DEATH(
      {
        InstallCrashReport();
        SetCrashReport("repeat 7");
        Deeper(1);
      },
      "repeat 7");
}

TEST_F(LastWordsTest, ASignalThatWasSentStillEndsTheProgram) {
#ifndef __SANITIZE_ADDRESS__  // which exits by itself
  EXPECT_EXIT(
      {
        InstallCrashReport();
        SetCrashReport("repeat 7");
        std::raise(SIGSEGV);
      },
      testing::KilledBySignal(SIGSEGV), "repeat 7");
#endif
  EXPECT_EXIT(
      {
        InstallCrashReport();
        SetCrashReport("repeat 7");
        std::raise(SIGABRT);
      },
      testing::KilledBySignal(SIGABRT), "repeat 7");
}

TEST_F(LastWordsTest, OnlyTheDyingThreadPrints) {
  EXPECT_DEATH(
      {
        InstallCrashReport();
        SetCrashReport("repeat 1");
        std::latch ready(1);
        std::thread other([&] {
          SetCrashReport("repeat 2");
          ready.wait();
          std::abort();
        });
        SetCrashReport("repeat 3");
        ready.count_down();
        other.join();
      },
      AllOf(HasSubstr("repeat 2"), Not(ContainsRegex("repeat [13]"))));
}

TEST_F(LastWordsTest, ACampaignNamesTheRunItDiesIn) {
  // A world without nodes, which only this test requests, and whose plan cannot be drawn.
  EXPECT_DEATH(
      {
        InstallCrashReport();
        RunCampaign(
            {.first_seed = 41, .runs = 1, .constraints = {.nodes = 0}, .replay = [](uint64_t seed) {
               return Concat("repeat ", seed);
             }});
      },
      "does not hold(.|\n)*repeat 41");
}

}  // namespace
}  // namespace muster::sim
