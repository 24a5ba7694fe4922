// Clocks of a process whose machine seems to have been suspended: it is in a time namespace.
#include "os/posix/posix_clock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string_view>

#include "os/posix/owned_fd.h"
#include "os/uv/uv_loop.h"

namespace muster {
namespace {

constexpr int kNotPossible = 77;

/// What `work` returns in a process that believes that its machine was suspended for 1,000 s.
/// Without root, which this needs, it is an ordinary process, which tests less.
int AfterASuspension(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWTIME) != 0) _exit(kNotPossible);
    const OwnedFd offsets(open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC));
    constexpr std::string_view kOffset = "boottime 1000 0\n";
    if (write(offsets.get(), kOffset.data(), kOffset.size()) != ssize_t{kOffset.size()})
      _exit(kNotPossible);
    const pid_t grandchild = fork();  // the first process in the namespace
    if (grandchild == 0) _exit(work());
    int status = 0;
    waitpid(grandchild, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == kNotPossible ? work() : WEXITSTATUS(status);
}

Duration SinceBoot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

TEST(PosixClockTest, TimeGoesOnWhileTheMachineIsSuspended) {
  const int outcome = AfterASuspension([] {
    PosixClock clock;
    const Duration before = SinceBoot();
    const Instant now = clock.Now();
    if (now.since_start < before || now.since_start > SinceBoot()) return 1;
    clock.SleepUntil(now + 20ms);  // counted on the same clock
    const Duration slept = clock.Now() - now;
    return slept >= 20ms && slept < 500s ? 0 : 2;
  });
  EXPECT_EQ(outcome, 0);
}

TEST(PosixClockTest, SoDoesThatOfALoopAndBothAgree) {
  const int outcome = AfterASuspension([] {
    auto thread = UvThread::Open();
    if (!thread) return 1;
    int verdict = 2;
    (*thread)->RunAndWait([&] {
      const Duration apart = PosixClock().Now() - (*thread)->loop().Now();
      verdict = apart > -1s && apart < 100s ? 0 : 3;
    });
    return verdict;
  });
  EXPECT_EQ(outcome, 0);
}

TEST(UvAlarmTest, RingsWhenItsClockIsThere) {
  const int outcome = AfterASuspension([] {
    auto thread = UvThread::Open();
    if (!thread) return 1;
    UvLoop& loop = (*thread)->loop();
    std::promise<Instant> rung;
    std::unique_ptr<Timer> alarm;
    Instant when{};
    (*thread)->RunAndWait([&] {
      when = loop.Now() + 30ms;
      alarm = loop.At(when, [&] {
        alarm.reset();  // a timer may destroy itself
        rung.set_value(loop.Now());
      });
    });
    auto future = rung.get_future();
    if (future.wait_for(20s) != std::future_status::ready) return 2;
    return future.get() >= when ? 0 : 3;
  });
  EXPECT_EQ(outcome, 0);
}

TEST(UvAlarmTest, WhatIsPastRingsOnceAndWhatIsDestroyedNever) {
  auto thread = UvThread::Open();
  ASSERT_TRUE(thread);
  UvLoop& loop = (*thread)->loop();
  int rings = 0;
  bool destroyed_rang = false;
  std::promise<void> later;
  std::unique_ptr<Timer> past;
  std::unique_ptr<Timer> last;
  (*thread)->RunAndWait([&] {
    past = loop.At(Instant{}, [&] { ++rings; });
    loop.At(loop.Now() + 5ms, [&] { destroyed_rang = true; });
    last = loop.At(loop.Now() + 50ms, [&] { later.set_value(); });
  });
  later.get_future().wait();
  (*thread)->RunAndWait([&] {
    past.reset();
    last.reset();
  });
  EXPECT_EQ(rings, 1);
  EXPECT_FALSE(destroyed_rang);
}

// As on a node where another process or library has used up the descriptors.
TEST(UvAlarmTest, RingsAlsoWhereNoDescriptorIsLeft) {
  auto thread = UvThread::Open();
  ASSERT_TRUE(thread);
  UvLoop& loop = (*thread)->loop();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  std::promise<void> rung;
  std::unique_ptr<Timer> alarm;
  (*thread)->RunAndWait([&] {
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    alarm = loop.At(loop.Now() + 5ms, [&] {
      alarm.reset();
      rung.set_value();
    });
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  });
  rung.get_future().wait();
}

}  // namespace
}  // namespace muster
